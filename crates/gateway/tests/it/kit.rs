//! Shared by all suites: a gateway on a test's store and database, and functions that read its keys.

use hob_web::{Changes, Service as _};
use std::net::SocketAddr;
use std::time::Duration;

use hob_fixtures::{Needs, TestContext};
use hob_gateway::keys::{Endpoint, Keys};
use hob_gateway::{Config, Gateway, MIGRATIONS};
use hob_schema::Shard;
use hob_service::{Live, Period, ServiceContext};
use hob_store::{Clock, FromRedisValue, Key, cmd};
use hob_testkit::{LIMIT, wait_for};
use http::{HeaderMap, Method, StatusCode};

pub(crate) const NEEDS: Needs = Needs {
    schemas: &[("schemas/gateway.toml", include_str!("../../../../schemas/gateway.toml"))],
    migrations: &[MIGRATIONS],
};

pub(crate) const CLIENT: &str = "203.0.113.7";

/// A gateway instance under test.
pub(crate) struct TestInstance {
    pub(crate) gateway: Gateway,
    pub(crate) context: ServiceContext,
    pub(crate) keys: Keys,
}

impl TestInstance {
    pub(crate) async fn start(context: &ServiceContext, toml: &str) -> Self {
        Self::start_with_changes(context, toml, &Changes::detached(context)).await
    }

    /// Notifies open pages through `changes`.
    pub(crate) async fn start_with_changes(context: &ServiceContext, toml: &str, changes: &Changes) -> Self {
        let mut config: Config = toml::from_str(toml).expect("a valid section");
        if !toml.contains("store_timeout") {
            // On a busy machine a slow store must not make requests pass.
            config.store_timeout = Period::from_secs(LIMIT.as_secs());
        }
        let gateway = Gateway::open(context, Live::fixed(config)).await.expect("the gateway opens");
        gateway.start(changes);
        Self { gateway, context: context.clone(), keys: Keys::new(context.layout) }
    }

    /// A request from another host, answered with this status.
    pub(crate) async fn request(&self, method: Method, path: &str, status: u16) {
        self.request_from(CLIENT, method, path, status).await;
    }

    pub(crate) async fn request_from(&self, client: &str, method: Method, path: &str, status: u16) -> bool {
        let peer = SocketAddr::new(client.parse().expect("an address"), 4711);
        let checked = self.gateway.admission().admit(peer, &method, path, &HeaderMap::new()).await;
        let refusal = checked.refusal;
        let status =
            refusal.map_or(StatusCode::from_u16(status).expect("a status"), hob_admission::Refusal::status);
        checked.finish(status);
        refusal.is_none()
    }

    /// A counter's value, summed over the shards; 0 if it does not exist.
    pub(crate) async fn count(&self, key: impl Fn(&Keys, Shard) -> Key) -> u64 {
        let mut sum = 0;
        for shard in self.keys.space().shards() {
            sum += self.read::<Option<u64>>("GET", &key(&self.keys, shard)).await.unwrap_or(0);
        }
        sum
    }

    /// Waits until a counter has exactly this value.
    pub(crate) async fn expect(&self, value: u64, key: impl Fn(&Keys, Shard) -> Key) {
        let name = key(&self.keys, self.keys.space().shard(0).expect("a shard"));
        wait_for(format!("{name} to be {value}"), LIMIT, async || {
            let found = self.count(&key).await;
            if found == value { Ok(()) } else { Err(found) }
        })
        .await;
    }

    /// The one key of its family that exists, in any shard.
    pub(crate) async fn find(&self, key: impl Fn(&Keys, Shard) -> Key) -> Key {
        for shard in self.keys.space().shards() {
            let key = key(&self.keys, shard);
            if self.read::<bool>("EXISTS", &key).await {
                return key;
            }
        }
        panic!("no shard has the key");
    }

    pub(crate) async fn read<T: FromRedisValue>(&self, command: &str, key: &Key) -> T {
        self.context.store.run(cmd(command).arg(key.as_bytes())).await.expect("a reply")
    }

    pub(crate) async fn stop(&self) {
        assert_eq!(self.context.tasks.stop(LIMIT).await, Vec::<String>::new());
    }
}

pub(crate) fn endpoint(name: &str) -> Endpoint {
    Endpoint::new(name).expect("an endpoint")
}

/// The same context with a clock that the test sets, late in a second in the middle of an hour.
pub(crate) fn with_clock(context: &TestContext) -> (ServiceContext, Clock) {
    let clock = Clock::driven(Duration::from_millis(1_763_289_000_950));
    let mut driven = context.context().clone();
    driven.store = driven.store.with_clock(clock.clone());
    (driven, clock)
}
