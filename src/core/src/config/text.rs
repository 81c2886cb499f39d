//! The small languages inside the configuration: durations, windows and limits.

use crate::limit::{Algorithm, Limit, MAX_COUNT, MAX_WINDOW_MS};

use super::fault::did_you_mean;

const WINDOWS: &str = "s, min, h, d, or a duration such as 250ms, 10s, 1h30m, from 1ms to 31d";

/// Names of windows, with their milliseconds.
const UNITS: [(&str, u64); 15] = [
    ("s", 1000),
    ("sec", 1000),
    ("secs", 1000),
    ("second", 1000),
    ("seconds", 1000),
    ("min", 60_000),
    ("mins", 60_000),
    ("minute", 60_000),
    ("minutes", 60_000),
    ("h", 3_600_000),
    ("hour", 3_600_000),
    ("hours", 3_600_000),
    ("d", 86_400_000),
    ("day", 86_400_000),
    ("days", 86_400_000),
];

/// Units of durations, with their milliseconds; the longer ones first, so that `ms` isn't taken for `m`.
const DURATION_UNITS: [(&str, u64); 6] =
    [("ms", 1), ("min", 60_000), ("m", 60_000), ("s", 1000), ("h", 3_600_000), ("d", 86_400_000)];

/// Milliseconds of a duration such as `250ms`, `10s`, `1h30m`. `None` where it isn't one.
pub(crate) fn duration_ms(text: &str) -> Option<u64> {
    let mut rest = text;
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let number: u64 = rest.get(..digits)?.parse().ok()?;
        rest = rest.get(digits..)?;
        let (unit, ms) = DURATION_UNITS.iter().find(|(unit, _)| rest.starts_with(unit))?;
        rest = rest.get(unit.len()..)?;
        total = total.checked_add(number.checked_mul(*ms)?)?;
    }
    (!text.is_empty()).then_some(total)
}

/// A duration as it is written.
pub(crate) fn spelled(ms: u64) -> String {
    match ms {
        0 => "0s".to_owned(),
        _ if ms.is_multiple_of(3_600_000) => format!("{}h", ms / 3_600_000),
        _ if ms.is_multiple_of(1000) => format!("{}s", ms / 1000),
        _ => format!("{ms}ms"),
    }
}

/// Milliseconds of a window: `min`, `day`, `10s`.
///
/// # Errors
/// Says what is wrong and what is allowed.
pub(crate) fn window_ms(text: &str) -> Result<u64, String> {
    if text == "m" {
        return Err("\"m\" could be a minute or a month; write \"min\"".to_owned());
    }
    if matches!(text, "mo" | "month" | "months" | "year" | "years" | "y") {
        return Err(format!("a {text} has no fixed length; write a number of days, at most 31d"));
    }
    let named = UNITS.iter().find(|(name, _)| *name == text).map(|(_, ms)| *ms);
    match named.or_else(|| duration_ms(text)) {
        Some(ms) if (1..=MAX_WINDOW_MS).contains(&ms) => Ok(ms),
        Some(_) => Err(format!("the window \"{text}\" is out of range; allowed: 1ms to 31d")),
        None => {
            let names: Vec<&str> = UNITS.iter().map(|(name, _)| *name).collect();
            Err(format!("the window \"{text}\" isn't known{}; allowed: {WINDOWS}", did_you_mean(text, &names)))
        }
    }
}

/// A count or burst out of a limit's text.
fn count(text: &str, what: &str) -> Result<u64, String> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    match text.parse::<u64>().ok().filter(|n| digits && *n <= MAX_COUNT) {
        Some(0) if what == "count" => Err(zero_count()),
        Some(0) => Err(format!("a {what} of 0 admits nothing; allowed: 1 to {MAX_COUNT}")),
        Some(n) => Ok(n),
        None => Err(format!("the {what} \"{text}\" isn't an integer from 1 to {MAX_COUNT}")),
    }
}

/// Why a count of 0 is refused.
pub(crate) fn zero_count() -> String {
    format!("a count of 0 would deny every request; allowed: 1 to {MAX_COUNT}")
}

/// The algorithm of that name.
///
/// # Errors
/// Says which there are.
pub(crate) fn algorithm(name: &str) -> Result<Algorithm, String> {
    let names = Algorithm::ALL.map(Algorithm::name);
    let unknown =
        || format!("the algorithm \"{name}\" isn't known{}; allowed: {}", did_you_mean(name, &names), names.join(", "));
    Algorithm::ALL.into_iter().find(|algorithm| algorithm.name() == name).ok_or_else(unknown)
}

/// A limit's text: `COUNT/WINDOW [burst N] [ALGORITHM]`.
///
/// # Errors
/// Says what is wrong and what is allowed.
pub(crate) fn limit(text: &str, default: Algorithm) -> Result<Limit, String> {
    let mut words = text.split_ascii_whitespace();
    let rate = words.next().unwrap_or_default();
    let Some((number, window)) = rate.split_once('/') else {
        return Err("COUNT/WINDOW [burst N] [ALGORITHM] is wanted, such as 100/min or 20/s burst 40".to_owned());
    };
    let number = count(number, "count")?;
    let window_ms = window_ms(window)?;
    let mut burst = None;
    let mut named = None;
    while let Some(word) = words.next() {
        if word == "burst" && burst.is_none() && named.is_none() {
            burst = Some(count(words.next().unwrap_or_default(), "burst")?);
        } else if named.is_none() {
            named = Some(algorithm(word)?);
        } else {
            return Err(format!("\"{word}\" is too much; COUNT/WINDOW [burst N] [ALGORITHM] is wanted"));
        }
    }
    build(named.unwrap_or(default), number, window_ms, burst, None)
}

/// How long a leaky bucket holds a request back at most, where nothing is said.
const USUAL_DELAY_MS: u64 = 10_000;

/// The limit of these parts, which are in range.
///
/// # Errors
/// A burst or a greatest delay where the algorithm has none.
pub(crate) fn build(
    algorithm: Algorithm,
    count: u64,
    window_ms: u64,
    burst: Option<u64>,
    max_delay_ms: Option<u64>,
) -> Result<Limit, String> {
    let name = algorithm.name();
    if burst.is_some() && !algorithm.has_burst() {
        let with = Algorithm::ALL.into_iter().filter(|algorithm| algorithm.has_burst()).map(Algorithm::name);
        return Err(format!("a {name} has no burst; a burst goes with {}", with.collect::<Vec<_>>().join(", ")));
    }
    if max_delay_ms.is_some() && algorithm != Algorithm::LeakyBucket {
        return Err(format!("a {name} has no max_delay; it goes with {}", Algorithm::LeakyBucket.name()));
    }
    let limit = match algorithm {
        Algorithm::TokenBucket => Limit::token_bucket(count, window_ms, burst.unwrap_or(count)),
        Algorithm::LeakyBucket => {
            Limit::leaky_bucket(count, window_ms, burst.unwrap_or(count), max_delay_ms.unwrap_or(USUAL_DELAY_MS))
        }
        Algorithm::FixedWindow | Algorithm::SlidingLog | Algorithm::SlidingWindow => Limit::new(algorithm, count, window_ms),
    };
    limit.ok_or_else(|| format!("out of range; allowed: counts of 1 to {MAX_COUNT}, windows of 1ms to 31d"))
}
