//! The gateway's handle and its `Service`: opens the parts and starts the background tasks.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hob_admission::{Admission, AdmissionLayer, Limiter, Policy};
use hob_database::{Migrations, migrations};
use hob_service::{Live, Metric, Samples, ServiceContext, Task, Tasks};
use hob_trace::Tracer;
use hob_web::{Card, Changes, MAX_SEARCH_HITS, Routes, SearchHit, Service};
use http::uri::PathAndQuery;
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::keys::{InstanceId, Keys};
use crate::proxy::Proxy;
use crate::traffic::counter::TrafficCounter;
use crate::traffic::counts::Counts;
use crate::traffic::endpoints::Endpoints;
use crate::traffic::meter::Meter;
use crate::traffic::publisher::{Destination, FLUSH_EVERY, Publisher, SHARD_CHECK_EVERY, Sources};
use crate::traffic::statistics::Statistics;
use crate::{Error, card, demo, metrics, pages, routes};

/// The gateway's tables.
pub const MIGRATIONS: Migrations = migrations!("gateway": "0001_totals", "0002_times", "0003_hours");

/// The interval at which open pages are notified of changes.
const NOTIFY_EVERY: Duration = Duration::from_secs(1);

/// The gateway. Clones share their state.
#[derive(Clone, Debug)]
pub struct Gateway {
    inner: Arc<Inner>,
}

/// The longest interval between two checkpoints on the embedded engine.
const MAX_EMBEDDED_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct Inner {
    context: ServiceContext,
    config: Live<Config>,
    admission: Admission,
    traffic: TrafficCounter,
    statistics: Statistics,
    publisher: Arc<Mutex<Publisher>>,
    frontend: Option<Frontend>,
    /// Cancelled when the proxy has finished its last request.
    drained: CancellationToken,
}

/// The proxy and its listener.
#[derive(Debug)]
struct Frontend {
    proxy: Proxy,
    listener: Arc<TcpListener>,
    address: SocketAddr,
}

impl Service for Gateway {
    type Config = Config;
    type Error = Error;

    const TITLE: &'static str = "Gateway";
    const HREF: &'static str = "/gateway";
    const ICON: &'static str = "M3 6h9m-3-3 3 3-3 3m8 5H8m3-3-3 3 3 3";
    const SCHEMA: (&'static str, &'static str) =
        ("schemas/gateway.toml", include_str!("../../../schemas/gateway.toml"));
    const MIGRATIONS: Migrations = MIGRATIONS;
    const METRICS: &'static [Metric] = metrics::METRICS;

    /// Checks the configuration, and binds the listener if there is an upstream.
    async fn open(context: &ServiceContext, config: Live<Config>) -> Result<Self, Error> {
        let now = config.current();
        let policy = Policy::new(&now.policy())?;
        let keys = Keys::from_env(context.layout, &|name| std::env::var(name).ok())?;
        let store = context.store.with_deadline(now.store_timeout.get());
        let limiter = Limiter::new(store, keys.clone(), &policy);
        let traffic = TrafficCounter::default();
        let admission = Admission::new(policy, limiter.clone(), Some(Arc::new(traffic.clone())));
        let sources = Sources {
            store: context.store.clone(),
            database: context.database.clone(),
            traffic: traffic.clone(),
            limiter,
        };
        let publisher = Publisher::new(sources, destination(context, &now, &keys)?);
        let frontend = if now.upstream.is_empty() {
            None
        } else {
            Some(Frontend::open(&now, (&admission, &traffic), &context.tracer).await?)
        };
        let drained = CancellationToken::new();
        if frontend.is_none() {
            drained.cancel();
        }
        let inner = Inner {
            context: context.clone(),
            config,
            admission,
            traffic,
            statistics: Statistics::new(context.store.clone(), context.database.clone(), keys),
            publisher: Arc::new(Mutex::new(publisher)),
            frontend,
            drained,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Starts the proxy, the publisher, the health checks and the configuration watcher.
    fn start(&self, changes: &Changes) {
        let tasks = &self.inner.context.tasks;
        let gateway = self.clone();
        tasks.spawn("gateway metrics", move |task| gateway.clone().publish_counts(task));
        let gateway = self.clone();
        tasks.spawn("gateway configuration", move |task| gateway.clone().watch_config(task));
        if self.inner.frontend.is_some() {
            let gateway = self.clone();
            tasks.spawn("gateway proxy", move |_| gateway.clone().serve());
            let gateway = self.clone();
            tasks.spawn("gateway upstreams", move |task| gateway.clone().check_upstreams(task));
        }
        let (gateway, changes) = (self.clone(), changes.clone());
        tasks.spawn("gateway pages", move |task| gateway.clone().notify_pages(changes.clone(), task));
    }

    fn routes(&self) -> Routes {
        routes::routes().merge(pages::routes()).with_state(self.clone())
    }

    async fn card(&self) -> Card {
        card::card(self).await
    }

    async fn demo_config(config: Config, _: &Path) -> Result<Config, Error> {
        demo::config(&config).await
    }

    async fn demo(&self) -> Result<(), Error> {
        demo::start(self).await
    }

    async fn search(&self, query: &str) -> Result<Vec<SearchHit>, Error> {
        let rules = self.admission().limiter().rules();
        let named = rules.iter().filter(|rule| SearchHit::matches(query, &[rule.rule().name().as_str()]));
        let hit = |name: String| SearchHit {
            kind: "rule",
            href: format!(
                "/gateway/limits?rule={}#try",
                percent_encoding::utf8_percent_encode(&name, percent_encoding::NON_ALPHANUMERIC)
            ),
            title: name,
            detail: String::new(),
        };
        Ok(named.take(MAX_SEARCH_HITS).map(|rule| hit(rule.rule().name().to_string())).collect())
    }

    async fn samples(&self, samples: &mut Samples) -> Result<(), Error> {
        metrics::rule_limits(self.inner.admission.limiter(), samples);
        Ok(())
    }

    fn url(&self) -> Option<String> {
        let scheme = if self.inner.config.current().tls_certificate.is_some() { "https" } else { "http" };
        self.address().map(|address| format!("{scheme}://{address}"))
    }
}

impl Gateway {
    /// The address that clients connect to; `None` without an upstream.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.inner.frontend.as_ref().map(|frontend| frontend.address)
    }

    pub(crate) fn tasks(&self) -> &Tasks {
        &self.inner.context.tasks
    }

    /// Checks and counts requests, for services that do not use the proxy.
    #[must_use]
    pub fn admission(&self) -> &Admission {
        &self.inner.admission
    }

    /// A layer that applies this gateway's rules, for a service in Rust.
    #[must_use]
    pub fn layer(&self) -> AdmissionLayer {
        self.inner.admission.layer()
    }

    /// Counts requests and connections of this instance.
    #[must_use]
    pub fn meter(&self) -> &Arc<Meter> {
        &self.inner.traffic.meter
    }

    /// Reads what all instances counted.
    #[must_use]
    pub fn statistics(&self) -> &Statistics {
        &self.inner.statistics
    }

    /// The endpoints of this instance.
    pub(crate) fn endpoints(&self) -> &Endpoints {
        &self.inner.traffic.endpoints
    }

    /// Counts requests of the last day and of earlier days, each of these counts at its time.
    pub(crate) async fn replay(
        &self,
        earlier: Vec<(u64, Counts)>,
        day: Vec<(u64, Counts)>,
    ) -> Result<(), Error> {
        self.inner.publisher.lock().await.replay(earlier, day).await
    }

    async fn serve(self) {
        if let Some(frontend) = &self.inner.frontend {
            frontend.proxy.serve(&frontend.listener, &self.inner.context.tasks.stop_token()).await;
            self.inner.drained.cancel();
        }
    }

    async fn notify_pages(self, changes: Changes, task: Task) {
        let mut shown = None;
        while task.pause(NOTIFY_EVERY).await {
            // While the store is unavailable, pages keep what they show.
            let current = self.statistics().summary().await.ok();
            if current.is_some() && current != shown {
                changes.notify("gateway");
                shown = current;
            }
            task.heartbeat();
        }
    }

    async fn check_upstreams(self, task: Task) {
        let Some(frontend) = &self.inner.frontend else { return task.stop_requested().await };
        while task.pause(self.inner.config.current().health_interval.get()).await {
            let path = self.inner.config.current().health_path.clone();
            let path = path.parse::<PathAndQuery>().ok().filter(|_| !path.is_empty());
            frontend.proxy.check_health(path.as_ref()).await;
            task.heartbeat();
        }
    }

    /// The embedded engine is lost together with the process, and its counts with it, so they are saved every second.
    fn checkpoint_interval(&self) -> Duration {
        let configured = self.inner.config.current().checkpoint_interval.get();
        if self.inner.context.store.is_embedded() {
            configured.min(MAX_EMBEDDED_INTERVAL)
        } else {
            configured
        }
    }

    /// Flushes ten times a second and saves every `checkpoint_interval`. Flushes and saves once more when the gateway
    /// stops.
    async fn publish_counts(self, task: Task) {
        let (mut saved_at, mut checked_at) = (Instant::now(), Instant::now());
        let mut failing_since = None;
        while task.pause(FLUSH_EVERY).await {
            let mut publisher = self.inner.publisher.lock().await;
            let mut result = publisher.flush().await;
            if result.is_ok() && checked_at.elapsed() >= SHARD_CHECK_EVERY {
                result = publisher.restore_lost_shards().await;
                checked_at = Instant::now();
            }
            if result.is_ok() && saved_at.elapsed() >= self.checkpoint_interval() {
                result = publisher.save().await;
                saved_at = Instant::now();
            }
            match result {
                Ok(()) => failing_since = None,
                Err(error) if failing_since.is_none() => {
                    if !error.is_reported() {
                        tracing::warn!(%error, "failed to publish traffic counts, retrying");
                    }
                    failing_since = Some(Instant::now());
                }
                Err(_) => {}
            }
            task.lag(failing_since.map_or_else(Default::default, |since: Instant| since.elapsed()));
            task.heartbeat();
        }
        // Requests that finish while the proxy drains are counted too.
        self.inner.drained.cancelled().await;
        self.inner.admission.limiter().return_tokens().await;
        if let Err(error) = self.inner.publisher.lock().await.finish().await {
            tracing::warn!(%error, "failed to publish the last traffic counts before the stop");
        }
    }

    /// Applies every valid configuration. An invalid one is logged and changes nothing.
    async fn watch_config(self, task: Task) {
        let mut config = self.inner.config.clone();
        loop {
            tokio::select! {
                () = task.stop_requested() => return,
                changed = config.changed() => {
                    if let Err(error) = self.apply_config(&changed) {
                        tracing::error!(%error, "invalid gateway configuration, keeping the current one");
                    }
                }
            }
            task.heartbeat();
        }
    }
}

impl Gateway {
    /// Applies rules, lists, routes, upstreams and the certificate together, or none of them. The listener stays.
    fn apply_config(&self, config: &Config) -> Result<(), Error> {
        let policy = Policy::new(&config.policy())?;
        if let Some(frontend) = &self.inner.frontend {
            frontend.proxy.apply_config(config)?;
        }
        self.inner.admission.replace(policy, config.store_timeout.get());
        Ok(())
    }
}

impl Frontend {
    async fn open(
        config: &Config,
        (admission, traffic): (&Admission, &TrafficCounter),
        tracer: &Tracer,
    ) -> Result<Self, Error> {
        let proxy = Proxy::new(config, admission.clone(), traffic.clone(), tracer.clone())?;
        let failed = |source| Error::Listen { address: config.listen, source };
        let listener = TcpListener::bind(config.listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { proxy, listener: Arc::new(listener), address })
    }
}

fn destination(context: &ServiceContext, config: &Config, keys: &Keys) -> Result<Destination, Error> {
    let instance = config.instance.as_deref().unwrap_or(context.node.as_str());
    let instance = InstanceId::new(instance).map_err(|bad| Error::Config(format!("instance: {bad}")))?;
    let incarnation =
        InstanceId::new(hob_store::members::Incarnation::random()).expect("32 hexadecimal digits");
    let shard = keys.space().shard_of(instance.as_str());
    Ok(Destination { keys: keys.clone(), shard, instance, incarnation })
}
