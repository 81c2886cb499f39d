//! Composes the Lua files of `lua/` into the one script that Redis runs, and computes its SHA-1.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// The parts behind the clock, in the order in which they need each other.
const PARTS: [&str; 9] = [
    "verdicts.lua",
    "integers.lua",
    "expiry.lua",
    "token_bucket.lua",
    "fixed_window.lua",
    "sliding_log.lua",
    "sliding_window.lua",
    "leaky_bucket.lua",
    "driver.lua",
];

fn main() -> Result<(), Box<dyn Error>> {
    let lua = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("../../lua");
    println!("cargo::rerun-if-changed={}", lua.display());
    let clock = compact(&lua.join("clock.lua"))?;
    let decision = PARTS.iter().map(|part| compact(&lua.join(part))).collect::<Result<String, _>>()?;
    let source = format!("{clock}{decision}");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("script.sha1"), sha1_smol::Sha1::from(&source).digest().to_string())?;
    fs::write(out.join("script.lua"), source)?;
    fs::write(out.join("decision.lua"), decision)?;
    fs::write(out.join("overrides.lua"), compact(&lua.join("overrides.lua"))?)?;
    Ok(())
}

/// A file without its comment lines, blank lines and indentation: the script travels to Redis, and is hashed there.
fn compact(file: &Path) -> Result<String, Box<dyn Error>> {
    let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let code = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("--"));
    Ok(code.flat_map(|line| [line, "\n"]).collect())
}
