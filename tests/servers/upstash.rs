//! Upstash's REST protocol before a real Redis, as it is documented: `POST /` with a command as a JSON array, `POST /pipeline` with
//! several, a bearer token, texts in base64 where the client wants that (<https://upstash.com/docs/redis/features/restapi>). A test
//! asks it by Upstash's own client.

use super::{field, head, listen};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::io::{BufReader, Read, Write};
use std::net::TcpStream;

pub(crate) const TOKEN: &str = "t0ken";

/// Serves on the port that it gives, as long as the test process lives.
pub(crate) fn serve(redis_port: u16) -> u16 {
    listen(move |connection| answer(connection, redis_port))
}

/// Answers a request. `None` where there is none any more.
fn answer(connection: &mut BufReader<TcpStream>, redis_port: u16) -> Option<()> {
    let lines = head(connection)?;
    let size = field(&lines, "content-length").map_or(0, |value| value.parse().unwrap());
    let mut body = vec![0; size];
    connection.read_exact(&mut body).ok()?;
    let path = lines[0].split(' ').nth(1)?;
    let encoded = field(&lines, "upstash-encoding") == Some("base64");
    let run = |command: &Value| run(command, encoded, redis_port);
    let (status, answer) = match serde_json::from_slice(&body) {
        _ if field(&lines, "authorization") != Some(&format!("Bearer {TOKEN}")) => {
            (401, json!({"error": "WRONGPASS invalid or missing auth token"}))
        }
        Ok(Value::Array(commands)) if path == "/pipeline" => {
            (200, commands.iter().map(|command| run(command).unwrap_or_else(|error| error)).collect())
        }
        Ok(command) if path == "/" => match run(&command) {
            Ok(result) => (200, result),
            Err(error) => (400, error),
        },
        _ => (400, json!({"error": "ERR failed to parse command"})),
    };
    let body = answer.to_string();
    let answered =
        format!("HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len());
    connection.get_mut().write_all(format!("{answered}{body}").as_bytes()).ok()
}

fn run(command: &Value, encoded: bool, redis_port: u16) -> Result<Value, Value> {
    let word = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let words: Vec<String> = command.as_array().map(|words| words.iter().map(word).collect()).unwrap_or_default();
    let failed = |error: &redis::RedisError| {
        let text = format!("{} {}", error.code().unwrap_or("ERR"), error.detail().unwrap_or_default());
        json!({"error": text})
    };
    let client = redis::Client::open(format!("redis://127.0.0.1:{redis_port}/")).unwrap();
    let mut connection = client.get_connection().map_err(|error| failed(&error))?;
    let mut asked = redis::cmd(words.first().map_or("", String::as_str));
    asked.arg(words.get(1..).unwrap_or_default());
    let value: redis::Value = asked.query(&mut connection).map_err(|error| failed(&error))?;
    Ok(json!({"result": as_json(value, encoded)}))
}

fn as_json(value: redis::Value, encoded: bool) -> Value {
    match value {
        redis::Value::Int(number) => json!(number),
        redis::Value::BulkString(bytes) if encoded => json!(STANDARD.encode(bytes)),
        redis::Value::BulkString(bytes) => json!(String::from_utf8_lossy(&bytes)),
        redis::Value::SimpleString(text) => json!(text),
        redis::Value::Okay => json!("OK"),
        redis::Value::Array(values) => values.into_iter().map(|value| as_json(value, encoded)).collect(),
        _ => Value::Null,
    }
}
