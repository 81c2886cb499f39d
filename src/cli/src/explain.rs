//! `weir explain`: what the rules make of a request, and why.

use crate::check::{self, Outcome};
use crate::document::Document;
use crate::plugins::Plugin;
use crate::requests::{self, Asked};
use crate::say;
use serde_json::Value;
use std::fmt::Write;
use std::net::IpAddr;
use weir_core::config::{Mode, RuleConfig};
use weir_core::limit::Limit;
use weir_core::request::Sample;
use weir_core::rules::{
    Before, Check, Explanation, Finding, Level, LiveOverrides, Origin, Route, Rules, Surroundings, metadata_message,
    redis_key,
};

/// The file, the request, and what Envoy would know of it.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The configuration: a file that weir check takes; - for standard input
    file: String,
    /// The request's method
    #[arg(long, default_value = "GET", conflicts_with = "requests")]
    method: String,
    /// Its path with its query, or its URL
    #[arg(long, default_value = "/", conflicts_with = "requests")]
    path: String,
    /// Its host
    #[arg(long)]
    host: Option<String>,
    /// A header of it, NAME: VALUE; of each, where there are several
    #[arg(long = "header", short = 'H', value_name = "HEADER")]
    headers: Vec<String>,
    /// Requests from a file in place of --method and --path: HAR, or curl lines; - for standard input
    #[arg(long, value_name = "FILE")]
    requests: Option<String>,
    /// The client's address as Envoy has it
    #[arg(long)]
    ip: Option<IpAddr>,
    /// The name of its route
    #[arg(long, value_name = "NAME")]
    route: Option<String>,
    /// The name of its virtual host
    #[arg(long, value_name = "NAME")]
    virtual_host: Option<String>,
    /// The name of its cluster
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,
    /// What the route's metadata says under weir, JSON or YAML: '{cost: 5}'
    #[arg(long, value_name = "SETTINGS")]
    route_metadata: Option<String>,
    /// The same of its virtual host, for a route that has none
    #[arg(long, value_name = "SETTINGS")]
    virtual_host_metadata: Option<String>,
    /// Dynamic metadata of an earlier filter, FILTER/KEY=VALUE
    #[arg(long, value_name = "METADATA")]
    metadata: Vec<String>,
    /// Filter state, KEY=VALUE
    #[arg(long, value_name = "STATE")]
    filter_state: Vec<String>,
    /// Another of Envoy's attributes, A/B/C=VALUE
    #[arg(long = "property", value_name = "PROPERTY")]
    properties: Vec<String>,
    /// What Envoy makes of a CEL expression, EXPRESSION=VALUE: 'request.size < 1000=true'
    #[arg(long = "cel", value_name = "VALUE")]
    expressions: Vec<String>,
}

/// Explains the request or the requests under each configuration of the file.
pub(crate) fn explain(options: &Options) -> Outcome {
    let report = check::read(&options.file);
    let contents = match &report {
        Ok(contents) if contents.faults.is_empty() => contents,
        _ => {
            check::tell(&options.file, &report);
            return check::outcome(&report);
        }
    };
    match explained(options, &contents.plugins) {
        Ok(text) => {
            say(std::io::stdout(), &text);
            Outcome::Good
        }
        Err(error) => {
            say(std::io::stderr(), &format!("{error}\n"));
            Outcome::Unreadable
        }
    }
}

fn explained(options: &Options, plugins: &[Plugin]) -> Result<String, String> {
    let requests = options.asked()?;
    let mut out = String::new();
    for plugin in plugins {
        let rules = Rules::new(&plugin.config);
        let route = options.settings(&rules)?;
        if let (Some(line), true) = (plugin.line, plugins.len() > 1) {
            write_line(&mut out, format_args!("{}:{line}:", options.file));
        }
        for request in &requests {
            let sample = options.sample(request)?;
            let around = Surroundings { route: route.as_ref(), live: &LiveOverrides::default(), roll: 0 };
            let explanation = rules.explain(&sample, around);
            Teller { plugin, rules: &rules, sample: &sample, out: &mut out }.tell(request, &explanation);
        }
    }
    Ok(out)
}

impl Options {
    fn asked(&self) -> Result<Vec<Asked>, String> {
        let mut requests = match &self.requests {
            None => vec![Asked::new(&self.method, &self.path)],
            Some(file) => {
                let text = check::text(file).map_err(|error| format!("{file}: can't be read: {error}"))?;
                requests::read(&text).map_err(|error| format!("{file}: {error}"))?
            }
        };
        for request in &mut requests {
            if let Some(host) = &self.host {
                request.authority.clone_from(host);
            }
            self.headers
                .iter()
                .try_for_each(|header| request.add_line(header))
                .map_err(|error| format!("--header: {error}"))?;
        }
        Ok(requests)
    }

    fn sample(&self, request: &Asked) -> Result<Sample, String> {
        let pseudo = [(":method", &request.method), (":path", &request.target), (":authority", &request.authority)];
        let pseudo = pseudo.map(|(name, value)| (name, value.as_str()));
        let headers = request.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let mut sample = Sample::new(pseudo.into_iter().chain(headers));
        if let Some(ip) = self.ip {
            sample = sample.with("source/address", ip.to_string());
        }
        let names = [("route", &self.route), ("virtual_host", &self.virtual_host), ("cluster", &self.cluster)];
        for (what, name) in names {
            if let Some(name) = name {
                sample = sample.with(&format!("xds/{what}_name"), name);
            }
        }
        for given in &self.properties {
            let (path, value) = named("--property", given, "A/B/C=VALUE")?;
            sample = sample.with(path, value);
        }
        for given in &self.filter_state {
            let (key, value) = named("--filter-state", given, "KEY=VALUE")?;
            sample.properties.insert(format!("filter_state\0{key}"), Ok(value.into()));
        }
        let mut metadata = Vec::new();
        for given in &self.metadata {
            let (path, value) = named("--metadata", given, "FILTER/KEY=VALUE")?;
            sample = sample.with(&format!("metadata/filter_metadata/{path}"), value);
            metadata.push((path.split('/').map(str::to_owned).collect(), value.to_owned()));
        }
        sample = sample.with("metadata", metadata_message(&metadata));
        for given in &self.expressions {
            // Expressions have `=` in them; values hardly ever.
            let wanted = || format!("--cel: \"{given}\": EXPRESSION=VALUE is wanted");
            let (expression, value) = given.rsplit_once('=').ok_or_else(wanted)?;
            let value = match value {
                "true" => vec![1],
                "false" => vec![0],
                text => text.as_bytes().to_vec(),
            };
            sample.expressions.insert(expression.trim().to_owned(), value);
        }
        Ok(sample)
    }

    /// What holds on the route.
    fn settings(&self, rules: &Rules) -> Result<Option<Route>, String> {
        let given = [
            ("--route-metadata", Level::Route, &self.route_metadata),
            ("--virtual-host-metadata", Level::VirtualHost, &self.virtual_host_metadata),
        ];
        for (option, level, text) in given {
            let Some(text) = text else { continue };
            let settings = match Document::all(text) {
                Ok(mut documents) => documents.pop().map_or(Value::Null, |document| document.value),
                Err(error) => return Err(format!("{option}: {}", error.message)),
            };
            return match Route::parse(&settings, level, rules) {
                Ok(route) => Ok(Some(route)),
                Err(faults) => {
                    let lines: Vec<String> = faults.iter().map(|fault| format!("{option}: {fault}")).collect();
                    Err(lines.join("\n"))
                }
            };
        }
        Ok(None)
    }
}

fn named<'g>(option: &str, given: &'g str, wanted: &str) -> Result<(&'g str, &'g str), String> {
    given.split_once('=').ok_or_else(|| format!("{option}: \"{given}\": {wanted} is wanted"))
}

/// Tells what the rules of a configuration make of a request.
struct Teller<'t> {
    plugin: &'t Plugin,
    rules: &'t Rules,
    sample: &'t Sample,
    out: &'t mut String,
}

impl Teller<'_> {
    fn tell(&mut self, request: &Asked, explanation: &Explanation) {
        let client = explanation.client.map_or_else(|| "an unknown address".to_owned(), |client| client.to_string());
        write_line(self.out, format_args!("{request} from {client}"));
        match explanation.before {
            Some(Before::Blocked { place, status }) => {
                write_line(
                    self.out,
                    format_args!("  blocked with {status}: block[{place}] {}", self.part(&format!("/block/{place}"))),
                );
            }
            Some(Before::Exempt { place }) => {
                let exempt = self.part(&format!("/exempt/{place}"));
                write_line(self.out, format_args!("  exempt, no rule sees it: exempt[{place}] {exempt}"));
            }
            None => {
                let config = &self.plugin.config;
                for (place, rule) in config.rules.iter().enumerate() {
                    let id = self.rules.named(&rule.name);
                    match explanation.findings.iter().find(|(found, _)| Some(*found) == id) {
                        Some((_, finding)) => self.rule(place, rule, finding),
                        None => write_line(self.out, format_args!("  {}: off", rule.name)),
                    }
                }
            }
        }
        self.out.push('\n');
    }

    fn rule(&mut self, place: usize, rule: &RuleConfig, finding: &Finding) {
        let said = |field: &str| self.part(&format!("/rules/{place}/{field}"));
        let line = match finding {
            Finding::Applies(check) => return self.applies(place, rule, check),
            Finding::NotOnRoute if matches!(rule.select, weir_core::config::Select::Route) => {
                "doesn't apply: it is for routes whose metadata names it".to_owned()
            }
            Finding::NotOnRoute => "doesn't apply: the route's metadata names other rules".to_owned(),
            Finding::RouteDisabled => "doesn't apply: the route's metadata disables all rules".to_owned(),
            Finding::NoMatch(condition) => {
                format!("doesn't apply: match.{condition} {} doesn't hold", said(&format!("match/{condition}")))
            }
            Finding::NotWhen => format!("doesn't apply: when {} doesn't hold", said("when")),
            Finding::Unlimited(subject, origin) => {
                format!("doesn't limit {}: unlimited by {}", subject.as_str(), origin_of(*origin))
            }
            Finding::Missing(part) => {
                let skipped = match rule.on_missing {
                    weir_core::config::OnMissing::Skip => "doesn't apply (on_missing: skip)",
                    weir_core::config::OnMissing::Deny => "denies it (on_missing: deny)",
                };
                format!("{skipped}: the request has no {}", said(&format!("key/{part}")))
            }
        };
        write_line(self.out, format_args!("  {}: {line}", rule.name));
        self.unevaluated(place);
    }

    fn applies(&mut self, place: usize, rule: &RuleConfig, check: &Check) {
        let how = match (rule.mode, rule.enforce_percent) {
            (Mode::Shadow, _) => " in shadow".to_owned(),
            (_, 100) => String::new(),
            (_, percent) => format!(", enforced on {percent} % of requests"),
        };
        write_line(self.out, format_args!("  {}: applies{how}", rule.name));
        let subject = check.subject.as_str();
        write_line(self.out, format_args!("    subject  {subject}"));
        write_line(self.out, format_args!("    cost     {}", check.cost));
        write_line(self.out, format_args!("    limits   by {}", origin_of(check.origin)));
        for limit in &check.limits.limits {
            let key = self.plugin.config.store.as_ref().map(|store| {
                let mut key = b" in ".to_vec();
                redis_key(&mut key, &store.key_prefix, &rule.name, &check.subject, limit);
                String::from_utf8_lossy(&key).into_owned()
            });
            write_line(self.out, format_args!("      {}{}", spelled(limit), key.unwrap_or_default()));
        }
        if let (Some(_), Some(store)) = (rule.live_every_ms, &self.plugin.config.store) {
            let hash = format!("{}:overrides:{}", store.key_prefix, rule.name);
            write_line(self.out, format_args!("    live     HGET {hash} {subject} goes before these"));
        }
        self.unevaluated(place);
    }

    /// Says which expressions of a rule have no value here.
    fn unevaluated(&mut self, place: usize) {
        let of_rule = format!("rules[{place}].");
        for (path, expression) in &self.plugin.config.expressions {
            if path.starts_with(&of_rule) && !self.sample.expressions.contains_key(expression) {
                write_line(
                    self.out,
                    format_args!("    Envoy evaluates {expression}; say what it gives: --cel '{expression}=…'"),
                );
            }
        }
    }

    /// What the configuration says at a place.
    fn part(&self, pointer: &str) -> String {
        self.plugin.value.pointer(pointer).map(Value::to_string).unwrap_or_default()
    }
}

fn origin_of(origin: Origin) -> &'static str {
    match origin {
        Origin::Rule => "the rule",
        Origin::Route => "the route's metadata",
        Origin::Tier => "the tier",
        Origin::Override => "the override",
        Origin::LiveOverride => "the live override",
    }
}

/// A limit as configurations spell it, as far as they can: a leaky bucket's burst is cut to what leaves within its delay.
fn spelled(limit: &Limit) -> String {
    const UNITS: [(u64, &str); 4] = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s")];
    let window = match (limit.window_ms(), UNITS.iter().find(|(ms, _)| limit.window_ms().is_multiple_of(*ms))) {
        (window, Some((unit, name))) if window == *unit => (*name).to_owned(),
        (window, Some((unit, "min"))) => format!("{}m", window / unit),
        (window, Some((unit, name))) => format!("{}{name}", window / unit),
        (window, None) => format!("{window}ms"),
    };
    let name = limit.algorithm().name();
    // One of a leaky bucket's burst leaves at once.
    let burst = if name == "leaky_bucket" { limit.burst().saturating_sub(1) } else { limit.burst() };
    let burst = if burst == limit.count() { String::new() } else { format!(" burst {burst}") };
    format!("{}/{window}{burst} {name}", limit.count())
}

fn write_line(out: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing to a String can't fail.
    let _ = writeln!(out, "{line}");
}
