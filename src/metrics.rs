//! The filter's metrics in Envoy: `wasmcustom.weir.…` in its stats, `weir_…` in Prometheus.

use crate::host::{self, MetricKind};
use std::cell::Cell;
use weir_core::flow::{Kind, Tally};
use weir_core::rules::{RuleId, Rules};
use weir_core::store::Counter;

/// The ids of all metrics of a configuration. Metrics of the same name are one in all workers.
#[derive(Debug)]
pub(crate) struct Metrics {
    rules: Vec<RuleMetrics>,
    requests: Metric,
    timeouts: Metric,
    failures: Metric,
    noscript: Metric,
    reconnects: Metric,
    breaker_open: Metric,
    connected: Gauge,
    pending: Gauge,
    slots_used: Metric,
    latency_us: Metric,
    route_errors: Metric,
    override_errors: Metric,
    exempt: Metric,
    blocked: Metric,
}

#[derive(Debug)]
struct RuleMetrics {
    allowed: Metric,
    denied: Metric,
    shadow_denied: Metric,
    near_limit: Metric,
    missing_key: Metric,
    errors: Metric,
    local_allowed: Metric,
    local_denied: Metric,
    delayed: Metric,
    cache_denied: Metric,
    lease_allowed: Metric,
}

/// A metric; `None` where the host won't define it. What can't be counted isn't worth a request.
#[derive(Clone, Copy, Debug)]
struct Metric(Option<u32>);

impl Metric {
    fn define(kind: MetricKind, name: &str) -> Metric {
        Metric(host::define_metric(kind, name))
    }

    fn add(self, offset: i64) {
        if let Some(id) = self.0 {
            host::add_to_metric(id, offset);
        }
    }
}

/// This worker's part of a gauge that sums up all workers.
#[derive(Debug)]
struct Gauge {
    metric: Metric,
    told: Cell<usize>,
}

impl Gauge {
    fn define(name: &str) -> Gauge {
        Gauge { metric: Metric::define(MetricKind::Gauge, name), told: Cell::new(0) }
    }

    fn set(&self, value: usize) {
        let told = self.told.replace(value);
        let size = i64::try_from(value.abs_diff(told)).unwrap_or(i64::MAX);
        match value.cmp(&told) {
            std::cmp::Ordering::Less => self.metric.add(size.saturating_neg()),
            std::cmp::Ordering::Equal => {}
            std::cmp::Ordering::Greater => self.metric.add(size),
        }
    }
}

impl Metrics {
    pub(crate) fn new(rules: &Rules) -> Metrics {
        let counter = |name: &str| Metric::define(MetricKind::Counter, &format!("weir.store.{name}"));
        Metrics {
            rules: rules.iter().map(|(_, rule)| RuleMetrics::new(&rule.name)).collect(),
            requests: counter("requests"),
            timeouts: counter("timeouts"),
            failures: counter("failures"),
            noscript: counter("noscript"),
            reconnects: counter("reconnects"),
            breaker_open: counter("breaker_open"),
            connected: Gauge::define("weir.store.connected"),
            pending: Gauge::define("weir.store.pending"),
            slots_used: Metric::define(MetricKind::Gauge, "weir.local.slots_used"),
            latency_us: Metric::define(MetricKind::Histogram, "weir.store.latency_us"),
            route_errors: Metric::define(MetricKind::Counter, "weir.config.route_errors"),
            override_errors: Metric::define(MetricKind::Counter, "weir.config.override_errors"),
            exempt: Metric::define(MetricKind::Counter, "weir.request.exempt"),
            blocked: Metric::define(MetricKind::Counter, "weir.request.blocked"),
        }
    }

    /// A request under a rule whose key it doesn't have.
    pub(crate) fn missing_key(&self, rule: RuleId) {
        if let Some(rule) = self.rules.get(rule.place()) {
            rule.missing_key.add(1);
        }
    }

    pub(crate) fn tally(&self, rule: RuleId, tally: Tally) {
        if let Some(rule) = self.rules.get(rule.place()) {
            rule.of(tally).add(1);
        }
    }

    pub(crate) fn count(&self, counter: Counter) {
        let metric = match counter {
            Counter::Request => self.requests,
            Counter::Timeout => self.timeouts,
            Counter::Failure => self.failures,
            Counter::Noscript => self.noscript,
            Counter::Reconnect => self.reconnects,
            Counter::BreakerOpen => self.breaker_open,
        };
        metric.add(1);
    }

    /// Whether this worker reaches Redis.
    pub(crate) fn connected(&self, connected: bool) {
        self.connected.set(connected.into());
    }

    /// How many calls this worker has under way.
    pub(crate) fn pending(&self, calls: usize) {
        self.pending.set(calls);
    }

    /// One more slot of shared data is in use.
    pub(crate) fn slot_taken(&self) {
        self.slots_used.add(1);
    }

    /// A request under faulty metadata of its route.
    pub(crate) fn route_error(&self) {
        self.route_errors.add(1);
    }

    /// A live override that is ignored, or live overrides that couldn't be read.
    pub(crate) fn override_error(&self) {
        self.override_errors.add(1);
    }

    /// A request that was let by, or refused, before any rule.
    pub(crate) fn before_rules(&self, kind: Kind) {
        match kind {
            Kind::Exempt => self.exempt.add(1),
            Kind::Blocked { .. } => self.blocked.add(1),
            Kind::Allowed | Kind::Denied { .. } | Kind::Failed => {}
        }
    }

    /// Redis has answered a call.
    pub(crate) fn latency_us(&self, took_us: u64) {
        if let Some(id) = self.latency_us.0 {
            host::record_metric(id, took_us);
        }
    }
}

impl RuleMetrics {
    fn new(rule: &str) -> RuleMetrics {
        let counter = |name: &str| Metric::define(MetricKind::Counter, &format!("weir.rule.{rule}.{name}"));
        RuleMetrics {
            allowed: counter("allowed"),
            denied: counter("denied"),
            shadow_denied: counter("shadow_denied"),
            near_limit: counter("near_limit"),
            missing_key: counter("missing_key"),
            errors: counter("errors"),
            local_allowed: counter("local_allowed"),
            local_denied: counter("local_denied"),
            delayed: counter("delayed"),
            cache_denied: counter("cache_denied"),
            lease_allowed: counter("lease_allowed"),
        }
    }

    fn of(&self, tally: Tally) -> Metric {
        match tally {
            Tally::Allowed => self.allowed,
            Tally::Denied => self.denied,
            Tally::ShadowDenied => self.shadow_denied,
            Tally::NearLimit => self.near_limit,
            Tally::Error => self.errors,
            Tally::LocalAllowed => self.local_allowed,
            Tally::LocalDenied => self.local_denied,
            Tally::Delayed => self.delayed,
            Tally::CacheDenied => self.cache_denied,
            Tally::LeaseAllowed => self.lease_allowed,
        }
    }
}
