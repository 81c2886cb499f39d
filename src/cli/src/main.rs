//! The native command `weir`.

mod check;
mod document;
mod explain;
mod plugins;
mod requests;
mod schema;

use check::Outcome;
use clap::{Parser, Subcommand, ValueEnum};
use std::process::ExitCode;

/// Checks and explains configurations of Weir, the rate limiter inside Envoy.
#[derive(Parser)]
#[command(name = "weir", version, disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Tells the faults of configurations, as the filter does at its start, with their lines
    ///
    /// A file is a configuration by itself (JSON or YAML), an Envoy configuration with the filter in it, or a WasmPlugin. Of wasm
    /// filters those are checked that name weir, be it in the path of their code. CEL expressions are checked by Envoy alone.
    ///
    /// Exit code 0: no faults; 1: faults; 2: a file can't be read.
    Check {
        /// Files; - for standard input
        #[arg(required = true)]
        files: Vec<String>,
        /// How the faults are told
        #[arg(long, value_enum, default_value_t = Format::Text)]
        format: Format,
    },
    /// Tells what the rules make of a request, and why: subjects, limits, Redis keys
    ///
    /// Redis isn't asked. What Envoy would know of the request beside it is told by options.
    ///
    /// Exit code 0: told; 1: faults in the configuration; 2: a file can't be read, or an option.
    Explain(Box<explain::Options>),
    /// Prints the JSON Schema (2020-12) of the configuration, for editors
    Schema,
}

/// How something is told.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Format {
    /// A line for each fault: `FILE:LINE: PATH: VALUE: MESSAGE`
    Text,
    /// A list with an object for each file
    Json,
}

/// Writes a text. A reader that has gone away misses nothing.
pub(crate) fn say(mut to: impl std::io::Write, text: &str) {
    let _ = to.write_all(text.as_bytes());
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Check { files, format } => check::check(&files, format),
        Command::Explain(options) => explain::explain(&options),
        Command::Schema => {
            say(std::io::stdout(), schema::SCHEMA);
            Outcome::Good
        }
    };
    ExitCode::from(match outcome {
        Outcome::Good => 0,
        Outcome::Faulty => 1,
        Outcome::Unreadable => 2,
    })
}

#[cfg(test)]
mod fixtures;
#[cfg(test)]
mod reference;
