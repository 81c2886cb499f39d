//! Requests to explain: of options, of a HAR file, of a curl line.

use lexopt::{Arg, Parser};
use serde_json::Value;
use std::fmt;

/// A request as it would come to Envoy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) method: String,
    /// The host with its port; empty where it isn't known.
    pub(crate) authority: String,
    /// The path with its query.
    pub(crate) target: String,
    /// By lower-case names, in their order.
    pub(crate) headers: Vec<(String, String)>,
}

impl Asked {
    /// A request for a URL, or for a path.
    pub(crate) fn new(method: &str, url: &str) -> Asked {
        let bare = url.split('#').next().unwrap_or_default();
        let (authority, target) = match bare.split_once("://") {
            Some((_, rest)) => rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len())),
            None if bare.starts_with('/') => ("", bare),
            None => bare.split_at(bare.find(['/', '?']).unwrap_or(bare.len())),
        };
        let authority = authority.rsplit('@').next().unwrap_or_default();
        let slash = if target.starts_with('/') { "" } else { "/" };
        Asked {
            method: method.to_owned(),
            authority: authority.to_owned(),
            target: format!("{slash}{target}"),
            headers: Vec::new(),
        }
    }

    /// Adds a header; `host` is the authority.
    pub(crate) fn add(&mut self, name: &str, value: &str) {
        match name.trim().to_ascii_lowercase() {
            name if name == "host" || name == ":authority" => self.authority = value.trim().to_owned(),
            // HAR files of HTTP/2 have these beside the URL.
            name if name.starts_with(':') => {}
            name => self.headers.push((name, value.trim().to_owned())),
        }
    }

    /// Adds a header that is written `NAME: VALUE`.
    ///
    /// # Errors
    /// It isn't.
    pub(crate) fn add_line(&mut self, line: &str) -> Result<(), String> {
        let (name, value) = line.split_once(':').ok_or_else(|| format!("\"{line}\" is no header; NAME: VALUE is wanted"))?;
        if name.trim().is_empty() {
            return Err(format!("\"{line}\" is no header; NAME: VALUE is wanted"));
        }
        self.add(name, value);
        Ok(())
    }
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}{}", self.method, self.authority, self.target)
    }
}

/// The requests of a text: the entries of a HAR file, or curl lines as browsers copy them.
///
/// # Errors
/// It is neither, or there is none in it.
pub(crate) fn read(text: &str) -> Result<Vec<Asked>, String> {
    let requests = if text.trim_start().starts_with('{') { har(text)? } else { curl_lines(text)? };
    if requests.is_empty() { Err("no request in it; a HAR file or curl lines are wanted".to_owned()) } else { Ok(requests) }
}

fn har(text: &str) -> Result<Vec<Asked>, String> {
    let har: Value = serde_json::from_str(text).map_err(|error| format!("no HAR file: {error}"))?;
    let entries = har.pointer("/log/entries").and_then(Value::as_array);
    let entries = entries.ok_or("no HAR file: log.entries, a list, is wanted")?;
    let entry = |(place, entry): (usize, &Value)| {
        let request = &entry["request"];
        let part = |name: &str| {
            request[name]
                .as_str()
                .ok_or_else(|| format!("no HAR file: log.entries[{place}].request.{name}, a text, is wanted"))
        };
        let mut asked = Asked::new(part("method")?, part("url")?);
        for header in request["headers"].as_array().into_iter().flatten() {
            if let (Some(name), Some(value)) = (header["name"].as_str(), header["value"].as_str()) {
                asked.add(name, value);
            }
        }
        Ok(asked)
    };
    entries.iter().enumerate().map(entry).collect()
}

fn curl_lines(text: &str) -> Result<Vec<Asked>, String> {
    // Browsers break a command's lines with a backslash.
    let text = text.replace("\\\r\n", " ").replace("\\\n", " ");
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty() && !line.trim_start().starts_with('#'));
    lines.map(|(at, line)| curl(line).map_err(|error| format!("command {}: {error}", at.saturating_add(1)))).collect()
}

/// Options of curl that change nothing here and have a value.
const WITH_VALUE: [&str; 34] = [
    "o",
    "w",
    "m",
    "c",
    "x",
    "T",
    "r",
    "y",
    "Y",
    "z",
    "C",
    "D",
    "E",
    "K",
    "Q",
    "U",
    "output",
    "write-out",
    "max-time",
    "connect-timeout",
    "cookie-jar",
    "proxy",
    "cacert",
    "capath",
    "cert",
    "key",
    "resolve",
    "connect-to",
    "retry",
    "retry-delay",
    "limit-rate",
    "max-redirs",
    "interface",
    "unix-socket",
];
/// Options of curl that send a body.
const WITH_BODY: [&str; 9] = ["d", "F", "data", "data-raw", "data-ascii", "data-binary", "data-urlencode", "json", "form"];

/// The request that a curl command makes.
fn curl(line: &str) -> Result<Asked, String> {
    let words = shlex::split(line).ok_or("a quote without its end")?;
    let (program, words) = words.split_first().ok_or("a curl command is wanted")?;
    if program.rsplit('/').next() != Some("curl") {
        return Err(format!("\"{program}\" isn't curl; a HAR file or curl lines are wanted"));
    }
    let (mut method, mut url, mut headers, mut in_query) = (None, None, Vec::new(), false);
    let (mut body, mut data) = (false, Vec::new());
    let mut options = Parser::from_args(words);
    while let Some(option) = options.next().map_err(|error| error.to_string())? {
        let name = match option {
            Arg::Short(letter) => letter.to_string(),
            Arg::Long(name) => name.to_owned(),
            Arg::Value(value) => {
                url = Some(text(value)?);
                continue;
            }
        };
        let mut value = || options.value().map_err(|error| error.to_string()).and_then(text);
        match name.as_str() {
            "X" | "request" => method = Some(value()?),
            "url" => url = Some(value()?),
            "H" | "header" => headers.push(value()?),
            "A" | "user-agent" => headers.push(format!("user-agent: {}", value()?)),
            "e" | "referer" => headers.push(format!("referer: {}", value()?)),
            "b" | "cookie" => headers.push(format!("cookie: {}", value()?)),
            "oauth2-bearer" => headers.push(format!("authorization: Bearer {}", value()?)),
            "u" | "user" => headers.push(format!("authorization: Basic {}", basic(&value()?))),
            "I" | "head" => method = method.or_else(|| Some("HEAD".to_owned())),
            "G" | "get" => in_query = true,
            name if WITH_BODY.contains(&name) => {
                if name == "json" {
                    headers.push("content-type: application/json".to_owned());
                }
                body = true;
                data.push(value()?);
            }
            name if WITH_VALUE.contains(&name) => drop(value()?),
            // All others are switches, as far as requests need them.
            _ => {}
        }
    }
    let mut url = url.ok_or("a URL is wanted")?;
    if in_query && body {
        url = format!("{url}{}{}", if url.contains('?') { '&' } else { '?' }, data.join("&"));
    }
    let usual = if body && !in_query { "POST" } else { "GET" };
    let mut asked = Asked::new(method.as_deref().unwrap_or(usual), &url);
    headers.iter().try_for_each(|header| asked.add_line(header))?;
    Ok(asked)
}

fn basic(user: &str) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(user)
}

fn text(value: std::ffi::OsString) -> Result<String, String> {
    value.into_string().map_err(|_| "a word isn't UTF-8".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `METHOD authority target`, and the headers.
    fn told(asked: &Asked) -> (String, Vec<String>) {
        let headers = asked.headers.iter().map(|(name, value)| format!("{name}: {value}"));
        (format!("{} {} {}", asked.method, asked.authority, asked.target), headers.collect())
    }

    #[test]
    fn a_url_is_host_and_target() {
        let table = [
            ("https://user:pw@api.example.com:8443/a/b?c=d#e", "GET api.example.com:8443 /a/b?c=d"),
            ("http://api.example.com", "GET api.example.com /"),
            ("http://api.example.com?q=/x", "GET api.example.com /?q=/x"),
            ("http://[2001:db8::1]:80/a", "GET [2001:db8::1]:80 /a"),
            ("api.example.com/a", "GET api.example.com /a"),
            ("/a?b", "GET  /a?b"),
        ];
        for (url, wanted) in table {
            assert_eq!(told(&Asked::new("GET", url)).0, wanted, "{url}");
        }
    }

    #[test]
    fn a_curl_line_is_the_request_that_curl_makes() {
        let table: [(&str, &str, &[&str]); 8] = [
            ("curl https://a.example/x", "GET a.example /x", &[]),
            (
                "curl 'https://a.example/x' \\\n  -X 'DELETE' -H 'X-Api-Key: k' \\\n  --compressed",
                "DELETE a.example /x",
                &["x-api-key: k"],
            ),
            ("/usr/bin/curl -sSo /dev/null -XPUT -H'a: b:c' a.example", "PUT a.example /", &["a: b:c"]),
            ("curl --data a=b -d c=d a.example/x", "POST a.example /x", &[]),
            ("curl -G --data a=b -d c=d a.example/x?q", "GET a.example /x?q&a=b&c=d", &[]),
            ("curl -I --url=a.example -A agent -b 'a=b'", "HEAD a.example /", &["user-agent: agent", "cookie: a=b"]),
            (
                "curl -u user:pw --json {} a.example",
                "POST a.example /",
                &["authorization: Basic dXNlcjpwdw==", "content-type: application/json"],
            ),
            ("curl -H 'Host: b.example' --max-time 3 http://127.0.0.1:10000/x", "GET b.example /x", &[]),
        ];
        for (line, wanted, headers) in table {
            let requests = read(line).unwrap_or_else(|error| panic!("{line}: {error}"));
            let (asked, found) = told(&requests[0]);
            assert_eq!((asked.as_str(), requests.len()), (wanted, 1), "{line}");
            assert_eq!(found, headers, "{line}");
        }
        assert_eq!(read("# two\ncurl a.example\n\ncurl b.example\n").map(|requests| requests.len()), Ok(2));
    }

    #[test]
    fn a_har_file_is_its_entries() {
        let har = r#"{"log": {"entries": [
            {"request": {"method": "GET", "url": "https://a.example/x", "headers": [
                {"name": ":authority", "value": "b.example"}, {"name": ":path", "value": "/y"}, {"name": "X-A", "value": "1"}]}},
            {"request": {"method": "POST", "url": "https://a.example/z"}}]}}"#;
        let requests = read(har).unwrap();
        assert_eq!(told(&requests[0]), ("GET b.example /x".to_owned(), vec!["x-a: 1".to_owned()]));
        assert_eq!(told(&requests[1]).0, "POST a.example /z");
    }

    #[test]
    fn what_is_neither_is_refused() {
        let table = [
            ("", "no request in it; a HAR file or curl lines are wanted"),
            ("{}", "no HAR file: log.entries, a list, is wanted"),
            ("{", "no HAR file: EOF while parsing an object at line 1 column 1"),
            (
                r#"{"log":{"entries":[{"request":{"method":"GET"}}]}}"#,
                "no HAR file: log.entries[0].request.url, a text, is wanted",
            ),
            ("wget a", "command 1: \"wget\" isn't curl; a HAR file or curl lines are wanted"),
            ("curl 'a", "command 1: a quote without its end"),
            ("curl -X", "command 1: missing argument for option '-X'"),
            ("curl -s", "command 1: a URL is wanted"),
            ("curl a -H b", "command 1: \"b\" is no header; NAME: VALUE is wanted"),
        ];
        for (text, wanted) in table {
            assert_eq!(read(text), Err(wanted.to_owned()), "{text}");
        }
    }
}
