//! What limits a request: a rule's, or those of its tier, its subject or its route.

use crate::config::Limits;
use crate::limit::Limit;
use std::rc::Rc;

/// Limits as checks meet them; at least one.
#[derive(Debug, PartialEq, Eq)]
pub struct LimitSet {
    /// In Redis.
    pub limits: Vec<Limit>,
    /// What one Envoy grants of them while Redis is away; as many.
    pub local: Vec<Limit>,
}

/// What limits a subject; `None`: nothing does.
pub(super) type Allowance = Option<Rc<LimitSet>>;

/// Where a check's limits come from. The later ones go before the earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The rule.
    Rule,
    /// The metadata of the route or virtual host.
    Route,
    /// The tier that the request is in.
    Tier,
    /// The rule's `overrides`, by the subject.
    Override,
    /// Redis, by the subject.
    LiveOverride,
}

/// Limits of a configuration, with what one Envoy grants of them.
pub(super) fn allowance(limits: &Limits, share: f64) -> Allowance {
    match limits {
        Limits::Unlimited => None,
        Limits::These(limits) => Some(Rc::new(LimitSet {
            limits: limits.clone(),
            local: limits.iter().map(|limit| shared_out(limit, share)).collect(),
        })),
    }
}

/// One Envoy's part of a limit, rounded down, at least 1.
fn shared_out(limit: &Limit, share: f64) -> Limit {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "both in 1..=2^53"
    )]
    let part = |amount: u64| ((amount as f64 * share) as u64).clamp(1, amount);
    limit.shared(part(limit.count()), part(limit.burst())).unwrap_or(*limit)
}
