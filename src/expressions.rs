//! CEL expressions, which Envoy's own evaluator compiles and evaluates.

use crate::host::{self, Foreign};
use std::collections::HashMap;
use weir_core::config::{Config, Fault};

/// The expressions of a configuration, compiled by the host.
#[derive(Debug, Default)]
pub(crate) struct Expressions {
    /// The host's number for each, in its bytes.
    tokens: HashMap<String, Vec<u8>>,
}

impl Expressions {
    /// Compiles all expressions of a configuration.
    ///
    /// # Errors
    /// A fault for each that the host refuses.
    pub(crate) fn compile(config: &Config) -> Result<Expressions, Vec<Fault>> {
        let mut compiled = Expressions::default();
        let mut faults = Vec::new();
        for (path, text) in &config.expressions {
            if compiled.tokens.contains_key(text) {
                continue;
            }
            match host::foreign("expr_create", text.as_bytes()) {
                Ok(token) => drop(compiled.tokens.insert(text.clone(), token)),
                Err(Foreign::Failed) => faults.push(Fault::of_text(path, text, "Envoy's CEL evaluator can't compile it")),
                Err(Foreign::Unknown) => faults.push(Fault::of_text(path, text, "this host has no CEL evaluator")),
            }
        }
        if faults.is_empty() { Ok(compiled) } else { Err(faults) }
    }

    /// The value of an expression for the current request, in a callback of its own.
    pub(crate) fn evaluate(&self, expression: &str) -> Option<Vec<u8>> {
        host::foreign("expr_evaluate", self.tokens.get(expression)?).ok()
    }
}

impl Drop for Expressions {
    fn drop(&mut self) {
        for token in self.tokens.values() {
            // It fails where the host has forgotten it already.
            let _ = host::foreign("expr_delete", token);
        }
    }
}
