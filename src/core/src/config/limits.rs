//! Limits, wherever they stand: of rules, tiers, overrides and routes.

use super::reader::{Item, Reader};
use super::{Limits, text};
use crate::limit::{Algorithm, Limit, MAX_DELAY_MS};

/// The most limits in one place.
pub const MAX_LIMITS: usize = 8;

/// Why two limits can't stand beside each other: they would share a key in Redis.
fn twins(algorithm: Algorithm) -> String {
    format!("an earlier limit is a {} of the same window; keep the stricter one", algorithm.name())
}

/// A list of limits, or `unlimited`.
pub(super) fn limits(r: &mut Reader, item: &Item<'_>, default: Algorithm) -> Option<Limits> {
    if let Some(text) = item.value.as_str() {
        if text == "unlimited" {
            return Some(Limits::Unlimited);
        }
        return r.fault(item, "a list of 1 to 8 limits is wanted, such as [\"10/s\"], or unlimited");
    }
    let items = r.list(item, MAX_LIMITS, "limits, such as [\"10/s\"]")?;
    let mut limits: Vec<Option<Limit>> = Vec::new();
    for item in &items {
        let limit = limit(r, item, default);
        let twin = limit.filter(|limit| limits.iter().flatten().any(|earlier| earlier.same_key(limit)));
        if let Some(twin) = twin {
            r.fault::<()>(item, twins(twin.algorithm()));
        }
        limits.push(limit);
    }
    limits.into_iter().collect::<Option<Vec<_>>>().map(Limits::These)
}

/// Limits in one text, as live overrides have them: `500/s, 10000/h`, or `unlimited`.
///
/// # Errors
/// Says what is wrong and what is allowed.
pub fn limits_text(text: &str, default: Algorithm) -> Result<Limits, String> {
    if text.trim() == "unlimited" {
        return Ok(Limits::Unlimited);
    }
    let mut limits: Vec<Limit> = Vec::new();
    for text in text.split(',') {
        let limit = text::limit(text, default)?;
        if limits.iter().any(|earlier| earlier.same_key(&limit)) {
            return Err(twins(limit.algorithm()));
        }
        limits.push(limit);
    }
    if limits.len() > MAX_LIMITS {
        return Err(format!("{} limits; allowed: {MAX_LIMITS}", limits.len()));
    }
    Ok(Limits::These(limits))
}

pub(super) fn algorithm(r: &mut Reader, item: &Item<'_>) -> Option<Algorithm> {
    let name = r.text(item, "the name of an algorithm")?;
    text::algorithm(name).map_or_else(|message| r.fault(item, message), Some)
}

fn limit(r: &mut Reader, item: &Item<'_>, default: Algorithm) -> Option<Limit> {
    if let Some(text) = item.value.as_str() {
        return text::limit(text, default).map_or_else(|message| r.fault(item, message), Some);
    }
    if !item.value.is_object() {
        return r.fault(item, "a limit is wanted: text such as \"10/s\", or an object with count and window");
    }
    let o = r.object(item, &["count", "window", "burst", "algorithm", "max_delay"])?;
    let count = match o.get("count") {
        Some(item) if item.value.as_u64() == Some(0) => r.fault(&item, text::zero_count()),
        Some(item) => r.integer(&item, 1..=crate::limit::MAX_COUNT),
        None => r.missing(&o, "count", "an integer of at least 1 is wanted"),
    };
    let window = match o.get("window") {
        Some(item) => window(r, &item),
        None => r.missing(&o, "window", "a window such as \"min\" or \"10s\" is wanted"),
    };
    let burst = o.get("burst").map(|item| r.integer(&item, 1..=crate::limit::MAX_COUNT));
    let algorithm = o.get("algorithm").map_or(Some(default), |item| algorithm(r, &item));
    let burst = burst.map_or(Some(None), |burst| burst.map(Some));
    let max_delay = o.get("max_delay").map(|item| r.duration(&item, 1, MAX_DELAY_MS));
    let max_delay = max_delay.map_or(Some(None), |delay| delay.map(Some));
    text::build(algorithm?, count?, window?, burst?, max_delay?).map_or_else(|message| r.fault(item, message), Some)
}

fn window(r: &mut Reader, item: &Item<'_>) -> Option<u64> {
    let text = r.text(item, "a window such as \"min\" or \"10s\"")?;
    text::window_ms(text).map_or_else(|message| r.fault(item, message), Some)
}
