//! `weir check` as it is called from a script.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::PathBuf;
use std::process::Command;

const GOOD: &str = r#"{"rules":[{"name":"all","key":["ip"],"limits":["10/s"]}]}"#;
const BAD: &str = r#"{"rules":[{"name":"all","key":["ip"],"limits":["0/s"],"modes":"off"}]}"#;

fn file(name: &str, text: &str) -> String {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

/// Exit code, standard output, standard error.
fn weir(arguments: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_weir")).args(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

#[test]
fn a_good_file_is_told_so() {
    let good = file("good.json", GOOD);
    assert_eq!(weir(&["check", &good]), (0, format!("{good}: ok\n"), String::new()));
}

#[test]
fn every_fault_of_a_bad_file_is_a_line_and_the_other_files_are_read_too() {
    let (good, bad) = (file("good-beside.json", GOOD), file("bad.json", BAD));
    let (code, told, faults) = weir(&["check", &bad, &good]);
    assert_eq!((code, told), (1, format!("{good}: ok\n")));
    let lines: Vec<&str> = faults.lines().collect();
    assert_eq!(lines.len(), 2, "{faults}");
    assert!(lines.iter().all(|line| line.starts_with(&format!("{bad}: rules[0]."))), "{faults}");
    assert!(faults.contains(r#"did you mean "mode""#), "{faults}");
}

#[test]
fn a_file_that_is_not_there_is_another_exit_code() {
    let (code, told, faults) = weir(&["check", "/nowhere/weir.json"]);
    assert_eq!((code, told.as_str()), (2, ""));
    assert!(faults.starts_with("/nowhere/weir.json: can't be read: "), "{faults}");
}

#[test]
fn without_a_command_the_usage_is_told() {
    for arguments in [&[][..], &["check"], &["chek", "x"]] {
        let (code, told, usage) = weir(arguments);
        assert_eq!((code, told.as_str()), (2, ""), "{arguments:?}");
        assert!(usage.starts_with("usage: weir check FILE..."), "{usage}");
    }
}
