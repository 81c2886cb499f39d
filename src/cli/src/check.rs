//! `weir check`: the faults of configurations, as the filter tells them at its start, with their lines.

use crate::plugins::{Contents, Told, What};
use crate::{Format, say};
use serde_json::{Value, json};
use std::fmt;
use std::io::Read;
use weir_core::config::Fault;

/// The name that stands for standard input.
const STANDARD_INPUT: &str = "-";

/// How a file has done, the worse ones later.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Outcome {
    Good,
    Faulty,
    Unreadable,
}

/// Checks the files and tells what they are like; the outcome is that of the worst.
pub(crate) fn check(files: &[String], format: Format) -> Outcome {
    let reports: Vec<_> = files.iter().map(|file| (file, read(file))).collect();
    let worst = reports.iter().map(|(_, report)| outcome(report)).max();
    match format {
        Format::Text => reports.iter().for_each(|(file, report)| tell(file, report)),
        Format::Json => {
            let list: Value = reports.iter().map(|(file, report)| as_json(file, report)).collect();
            say(std::io::stdout(), &format!("{list:#}\n"));
        }
    }
    worst.unwrap_or(Outcome::Good)
}

/// Reads a file, or standard input.
///
/// # Errors
/// Says why it can't be read.
pub(crate) fn text(file: &str) -> Result<String, String> {
    let mut bytes = Vec::new();
    let read = match file {
        STANDARD_INPUT => std::io::stdin().lock().read_to_end(&mut bytes).map(|_| ()),
        _ => std::fs::read(file).map(|read| bytes = read),
    };
    read.map_err(|error| error.to_string())?;
    String::from_utf8(bytes).map_err(|_| "it isn't UTF-8".to_owned())
}

/// Reads a file's configurations.
///
/// # Errors
/// Says why it can't be read.
pub(crate) fn read(file: &str) -> Result<Contents, String> {
    text(file).map(|text| Contents::read(file, &text))
}

/// How a file has done.
pub(crate) fn outcome(report: &Result<Contents, String>) -> Outcome {
    match report {
        Ok(contents) if contents.faults.is_empty() => Outcome::Good,
        Ok(_) => Outcome::Faulty,
        Err(_) => Outcome::Unreadable,
    }
}

/// Tells what a file is like.
pub(crate) fn tell(file: &str, report: &Result<Contents, String>) {
    match report {
        Err(error) => say(std::io::stderr(), &format!("{file}: can't be read: {error}\n")),
        Ok(contents) if contents.faults.is_empty() => say(std::io::stdout(), &format!("{file}: {}\n", summary(contents))),
        Ok(contents) => contents.faults.iter().for_each(|told| say(std::io::stderr(), &line(file, told))),
    }
}

fn line(file: &str, told: &Told) -> String {
    match told.line {
        Some(line) => format!("{file}:{line}: {told}\n"),
        None => format!("{file}: {told}\n"),
    }
}

fn summary(contents: &Contents) -> String {
    let rules: usize = contents.plugins.iter().map(|plugin| plugin.config.rules.len()).sum();
    match (contents.plugins.len(), rules) {
        (0, _) => "ok, the bridge, which has no configuration".to_owned(),
        (1, 1) => "ok, 1 rule".to_owned(),
        (1, rules) => format!("ok, {rules} rules"),
        (plugins, rules) => format!("ok, {plugins} configurations with {rules} rules"),
    }
}

fn as_json(file: &str, report: &Result<Contents, String>) -> Value {
    match report {
        Err(error) => json!({"file": file, "ok": false, "error": format!("can't be read: {error}"), "faults": []}),
        Ok(contents) => {
            let faults: Vec<Value> = contents.faults.iter().map(fault).collect();
            json!({"file": file, "ok": faults.is_empty(), "faults": faults})
        }
    }
}

fn fault(told: &Told) -> Value {
    let (metadata_of, fault) = match &told.what {
        What::File(_) => (None, None),
        What::Config(fault) => (None, Some(fault)),
        What::Metadata(level, fault) => (Some(level.title()), Some(fault)),
    };
    json!({
        "line": told.line,
        "metadata_of": metadata_of,
        "path": fault.map(Fault::path),
        "value": fault.and_then(Fault::value),
        "message": match &told.what {
            What::File(message) => message,
            What::Config(fault) | What::Metadata(_, fault) => fault.message(),
        },
    })
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.what {
            What::File(message) => f.write_str(message),
            What::Config(fault) => write!(f, "{fault}"),
            What::Metadata(level, fault) => write!(f, "metadata of a {}: {fault}", level.title()),
        }
    }
}
