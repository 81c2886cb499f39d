//! Commands as the request of an HTTP callout, and the replies in its answer, for each transport that isn't a stream.
//!
//! - `redis-call`: the body is RESP, and the cluster passes it on as raw TCP. With a password, each begins with AUTH.
//! - Upstash: `POST /` with a command as a JSON array, `POST /pipeline` with several; `{"result":…}` or `{"error":…}` for each
//!   (<https://upstash.com/docs/redis/features/restapi>).
//! - Webdis: `POST /` with a command's words between slashes, percent-encoded; `{"COMMAND":…}`, an error as `[false,"text"]`
//!   (<https://github.com/nicolasff/webdis>). Its `.raw` form is no RESP: integers come as texts there.

use super::call::command;
use super::{Failure, Reply, resp};
use crate::config::{Auth, Secret, Store, Transport};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use serde_json::Value;

/// The request of a callout.
#[derive(Clone, PartialEq, Eq)]
pub struct HttpCall {
    /// With the pseudo-headers.
    pub headers: Vec<(&'static str, String)>,
    /// The body.
    pub body: Vec<u8>,
    /// How long it may take, in milliseconds, at least 1.
    pub timeout_ms: u32,
}

impl std::fmt::Debug for HttpCall {
    /// Headers and body may hold a secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HttpCall({} bytes, {} ms)", self.body.len(), self.timeout_ms)
    }
}

/// A callout's answer: its status and body. `None` where there was none, or it broke off.
pub type HttpReply<'b> = Option<(u16, &'b [u8])>;

/// How commands are written and replies are read.
#[derive(Debug)]
pub(super) struct Wire {
    transport: Transport,
    path: String,
    authority: String,
    secret: Option<Secret>,
}

/// The command that opens a Redis with a password.
pub(super) fn auth(secret: &Secret) -> Vec<u8> {
    let words: Vec<&[u8]> = std::iter::once("AUTH").chain(secret.words()).map(str::as_bytes).collect();
    command(&words)
}

/// What opens the store; the filter knows it from its environment by now.
pub(super) fn secret(store: &Store) -> Option<Secret> {
    match &store.auth {
        Some(Auth::Value(secret)) => Some(secret.clone()),
        Some(Auth::Env(_)) | None => None,
    }
}

impl Wire {
    pub(super) fn new(store: &Store) -> Wire {
        let (path, authority) = (store.path.clone(), store.authority.clone());
        Wire { transport: store.transport, path, authority, secret: secret(store) }
    }

    /// The most commands of one callout.
    pub(super) fn at_once(&self) -> usize {
        match self.transport {
            Transport::Redis | Transport::RedisCall | Transport::Upstash => usize::MAX,
            Transport::Webdis => 1,
        }
    }

    /// The request that brings these commands of RESP.
    pub(super) fn request(&self, commands: &[Vec<u8>], timeout_ms: u32) -> HttpCall {
        let mut headers = vec![(":method", "POST".to_owned()), (":authority", self.authority.clone())];
        let (path, body) = match self.transport {
            Transport::Redis | Transport::RedisCall => {
                let mut body = self.secret.as_ref().map(auth).unwrap_or_default();
                body.extend(commands.iter().flatten());
                ("/".to_owned(), body)
            }
            Transport::Upstash => {
                headers.push(("content-type", "application/json".to_owned()));
                let texts = |command: &Vec<u8>| {
                    words(command).into_iter().map(|word| Value::from(String::from_utf8_lossy(word))).collect::<Value>()
                };
                match commands {
                    [one] => (self.path.clone(), texts(one).to_string().into_bytes()),
                    several => {
                        let several = several.iter().map(texts).collect::<Value>();
                        (format!("{}pipeline", self.path), several.to_string().into_bytes())
                    }
                }
            }
            Transport::Webdis => {
                headers.push(("content-type", "application/x-www-form-urlencoded".to_owned()));
                let words = commands.first().map(|command| words(command)).unwrap_or_default();
                let escaped: Vec<String> =
                    words.into_iter().map(|word| percent_encode(word, NON_ALPHANUMERIC).to_string()).collect();
                (self.path.clone(), escaped.join("/").into_bytes())
            }
        };
        headers.push((":path", path));
        if let Some(secret) = &self.secret {
            match self.transport {
                Transport::Upstash => headers.push(("authorization", format!("Bearer {}", secret.text()))),
                Transport::Webdis => headers.push(("authorization", format!("Basic {}", STANDARD.encode(secret.text())))),
                Transport::Redis | Transport::RedisCall => {}
            }
        }
        HttpCall { headers, body, timeout_ms }
    }

    /// The replies to so many commands. An error of one command is a reply; a failure is one of all.
    pub(super) fn replies(&self, reply: HttpReply<'_>, commands: usize) -> Result<Vec<Reply>, Failure> {
        let (status, body) = reply.ok_or(Failure::Disconnected)?;
        let replies = match (self.transport, status) {
            (Transport::Upstash, _) => upstash(status, body)?,
            (Transport::Webdis, 200) => vec![webdis(body).ok_or(Failure::BadReply("not Webdis's JSON"))?],
            (_, 200) => resp::replies(body)?,
            (_, status) => return Err(Failure::Status(status)),
        };
        let mut replies = replies.into_iter();
        if self.transport == Transport::RedisCall && self.secret.is_some() {
            let opened = replies.next().map(Reply::checked).transpose()?;
            if !matches!(opened, Some(Reply::Status(_))) {
                return Err(Failure::BadReply("not that of AUTH"));
            }
        }
        let replies: Vec<Reply> = replies.collect();
        match replies.as_slice() {
            replies if replies.len() == commands => {}
            [Reply::Error(text)] => return Err(Failure::Error(text.clone())),
            _ => return Err(Failure::BadReply("not one for each command")),
        }
        Ok(replies)
    }
}

fn webdis(body: &[u8]) -> Option<Reply> {
    let Ok(Value::Object(answer)) = serde_json::from_slice(body) else { return None };
    let result = answer.values().next().filter(|_| answer.len() == 1)?;
    Some(match result.as_array().map(Vec::as_slice) {
        Some([Value::Bool(false), Value::String(text)]) => error(text),
        _ => result_of(result),
    })
}

fn error(text: &str) -> Reply {
    Reply::Error(resp::printable(text.as_bytes()))
}

fn upstash(status: u16, body: &[u8]) -> Result<Vec<Reply>, Failure> {
    let one = |value: &Value| match (value.get("error"), value.get("result")) {
        (Some(told), _) => Some(error(told.as_str().unwrap_or_default())),
        (None, Some(result)) => Some(result_of(result)),
        (None, None) => None,
    };
    let replies = match serde_json::from_slice(body) {
        Ok(Value::Array(values)) => values.iter().map(one).collect(),
        Ok(value) => one(&value).map(|reply| vec![reply]),
        Err(_) => None,
    };
    // An error of a command is a 400. Any other status is one of the service, whatever its body says.
    match (status, replies) {
        (200 | 400, Some(replies)) => Ok(replies),
        (200, None) => Err(Failure::BadReply("not Upstash's JSON")),
        (status, _) => Err(Failure::Status(status)),
    }
}

fn result_of(result: &Value) -> Reply {
    let Value::Array(items) = result else { return Reply::Other };
    if let Some(integers) = items.iter().map(Value::as_i64).collect() {
        return Reply::Integers(integers);
    }
    let text = |item: &Value| item.as_str().map(|text| text.as_bytes().to_vec());
    items.iter().map(text).collect::<Option<_>>().map_or(Reply::Other, Reply::Texts)
}

/// The words of a command that was written as an array of bulk strings.
fn words(command: &[u8]) -> Vec<&[u8]> {
    let mut words = Vec::new();
    let line = |bytes: &[u8]| bytes.windows(2).position(|two| two == b"\r\n");
    let mut rest = line(command).and_then(|end| command.get(end.saturating_add(2)..)).unwrap_or_default();
    while let [b'$', after @ ..] = rest {
        let Some((length, behind)) = line(after).and_then(|end| after.split_at_checked(end)) else { break };
        let length = std::str::from_utf8(length).ok().and_then(|text| text.parse().ok());
        let word = length.and_then(|length| behind.get(2..)?.split_at_checked(length));
        let Some((word, behind)) = word else { break };
        words.push(word);
        rest = behind.get(2..).unwrap_or_default();
    }
    words
}

#[cfg(test)]
mod tests;
