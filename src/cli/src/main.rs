//! The native command `weir`.

use std::process::ExitCode;
use weir_core::config::Config;

const USAGE: &str = "\
usage: weir check FILE...

  check   validates plugin configurations (JSON) as the filter does at its start
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.split_first() {
        Some((command, files)) if command == "check" && !files.is_empty() => check(files),
        _ => {
            eprint!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

/// Exit code 0: all good; 1: faults in a configuration; 2: a file can't be read.
fn check(files: &[String]) -> ExitCode {
    let mut worst = 0;
    for file in files {
        worst = worst.max(match std::fs::read(file) {
            Ok(bytes) => match Config::parse(&bytes) {
                Ok(_) => {
                    println!("{file}: ok");
                    0
                }
                Err(faults) => {
                    for fault in faults {
                        eprintln!("{file}: {fault}");
                    }
                    1
                }
            },
            Err(error) => {
                eprintln!("{file}: can't be read: {error}");
                2
            }
        });
    }
    ExitCode::from(worst)
}
