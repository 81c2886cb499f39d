//! The field `store.auth`: a secret that nothing ever shows, neither a fault nor a log line nor `Debug`.

use super::fault::Fault;
use super::reader::{Item, Reader};
use super::{Config, Transport};
use std::fmt;

/// The most bytes of a secret.
const MOST: usize = 4096;

/// What opens the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Auth {
    /// It is in this variable of the VM's environment ([`Config::with_environment`]).
    Env(String),
    /// It is this.
    Value(Secret),
}

/// A password, a user's name and password, or a token.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl Secret {
    /// A secret that fits the transport.
    ///
    /// # Errors
    /// What is wanted.
    fn new(text: &str, transport: Transport) -> Result<Secret, String> {
        if !(1..=MOST).contains(&text.len()) || text.chars().any(char::is_control) {
            return Err(format!("1 to {MOST} bytes without control characters are wanted"));
        }
        if transport == Transport::Webdis && !text.contains(':') {
            return Err("user:password is wanted".to_owned());
        }
        Ok(Secret(text.to_owned()))
    }

    /// As it stands.
    pub(crate) fn text(&self) -> &str {
        &self.0
    }

    /// The words of Redis's AUTH: the password alone, or a user and a password. A password that has a colon in it is written with one
    /// before it.
    pub(crate) fn words(&self) -> Vec<&str> {
        match self.0.split_once(':') {
            Some(("", password)) => vec![password],
            Some((user, password)) => vec![user, password],
            None => vec![&self.0],
        }
    }
}

pub(super) fn auth(r: &mut Reader, item: &Item<'_>, transport: Option<Transport>) -> Option<Auth> {
    let o = r.object(item, &["env", "value"])?;
    match (o.get("env"), o.get("value")) {
        (Some(item), None) => {
            let wanted = "the name of a variable in the VM's environment is wanted";
            let name = r.word(&item, 200, |b| b.is_ascii_alphanumeric() || b == b'_', wanted)?;
            Some(Auth::Env(name.to_owned()))
        }
        (None, Some(item)) => {
            let text = r.text(&item, "the secret")?;
            match Secret::new(text, transport?) {
                Ok(secret) => Some(Auth::Value(secret)),
                Err(wanted) => r.fault(&item, wanted),
            }
        }
        _ => r.fault(item, "one of env and value is wanted"),
    }
}

impl Config {
    /// The same with the secret that it has in the VM's environment.
    ///
    /// # Errors
    /// The variable isn't set, or what it says can't be the secret.
    pub fn with_environment(mut self, variable: impl Fn(&str) -> Option<String>) -> Result<Config, Vec<Fault>> {
        if let Some(store) = &mut self.store
            && let Some(Auth::Env(name)) = &store.auth
        {
            let secret = match variable(name) {
                Some(text) => Secret::new(&text, store.transport)
                    .map_err(|wanted| format!("what the VM's environment has is no such secret: {wanted}")),
                None => Err(format!("{name} isn't set in the VM's environment; vm_config.environment_variables sets it")),
            };
            let secret = secret.map_err(|message| vec![Fault::bare("store.auth.env", message)])?;
            store.auth = Some(Auth::Value(secret));
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_may_have_a_user_before_it_and_colons_in_it() {
        let words = |text| Secret::new(text, Transport::Redis).unwrap().words().join(" + ");
        assert_eq!(words("secret"), "secret");
        assert_eq!(words("weir:secret"), "weir + secret");
        assert_eq!(words("weir:se:cret"), "weir + se:cret");
        assert_eq!(words(":se:cret"), "se:cret");
    }

    fn parsed(text: &str) -> Result<Config, Vec<Fault>> {
        let store = format!(r#"{{"store":{text},"rules":[{{"name":"a","key":["ip"],"limits":["1/s"]}}]}}"#);
        Config::parse(store.as_bytes())
    }

    #[test]
    fn a_secret_is_never_shown_wherever_it_stands() {
        let shown = [
            r#"{"cluster":"c","auth":{"value":"hunter2"}}"#,
            r#"{"cluster":"c","auth":{"value":"hunter2\n"}}"#,
            r#"{"cluster":"c","auth":{"value":["hunter2"]}}"#,
            r#"{"cluster":"c","auth":{"vlaue":"hunter2"}}"#,
            r#"{"cluster":"c","auth":{"hunter2":1}}"#,
            r#"{"cluster":"c","auth":{"env":"hunter2!"}}"#,
            r#"{"cluster":"c","auth":{"env":"A","value":"hunter2"}}"#,
            r#"{"cluster":"c","auth":"hunter2"}"#,
            r#"{"cluster":"c","auht":{"value":"hunter2"}}"#,
            r#"{"cluster":"c","password":"hunter2"}"#,
            r#"{"cluster":"redis://:hunter2@host\n"}"#,
            r#"{"cluster":"c","transport":"webdis","auth":{"value":"hunter2"}}"#,
            r#""redis://:hunter2@host""#,
        ];
        for text in shown {
            let said = match parsed(text) {
                Ok(config) => format!("{config:?}"),
                Err(faults) => faults.iter().map(|fault| format!("{fault} {fault:?}\n")).collect(),
            };
            assert!(!said.contains("hunter2") || text.contains(r#""hunter2":1"#), "{text}: {said}");
        }
        let beside = Config::parse(
            br#"{"auth":{"value":"hunter2"},"rules":[{"name":"a","key":["ip"],"limits":["1/s"],"token":"hunter2"}]}"#,
        );
        assert!(!format!("{beside:?}").contains("hunter2"), "{beside:?}");
    }

    #[test]
    fn the_environment_gives_a_secret_or_a_fault() {
        let with = |transport: &str, given: Option<&str>| {
            let store = format!(r#"{{"cluster":"c","transport":"{transport}","auth":{{"env":"NAME"}}}}"#);
            let config =
                parsed(&store).unwrap().with_environment(|name| given.filter(|_| name == "NAME").map(str::to_owned));
            config.map(|config| config.store.unwrap().auth).map_err(|faults| faults[0].to_string())
        };
        assert_eq!(with("redis", Some("x")), Ok(Some(Auth::Value(Secret("x".to_owned())))));
        let unset = "store.auth.env: NAME isn't set in the VM's environment; vm_config.environment_variables sets it";
        assert_eq!(with("redis", None), Err(unset.to_owned()));
        let odd = "store.auth.env: what the VM's environment has is no such secret: ";
        assert_eq!(with("redis", Some("")), Err(format!("{odd}1 to 4096 bytes without control characters are wanted")));
        assert_eq!(with("webdis", Some("x")), Err(format!("{odd}user:password is wanted")));
    }
}
