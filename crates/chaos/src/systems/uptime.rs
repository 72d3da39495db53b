//! Uptime: targets that fail and recover, in bursts of faults and between them. Every outage is one incident with one alert
//! for its begin and one for its end.

mod ledger;
mod outside;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures_util::future::{FutureExt as _, LocalBoxFuture, join_all};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use self::ledger::{Incident, compare};
use self::outside::Outside;
use crate::seed::Random;
use crate::system::{System, pause, within};
use crate::world::World;

const NAME: &str = "uptime";

/// Monitors that fail under faults and recover in the calm, and as many the other way round.
const MONITORS: usize = 8;

/// A change must be noticed within this time in a calm phase: a rebuild of the schedule, the lease of a dead node, an
/// interval with its retries, and time for a busy machine.
const NOTICED_WITHIN: Duration = Duration::from_secs(75);

const MONITORS_PATH: &str = "/api/v1/uptime/monitors";

/// The monitors and their targets.
pub(crate) struct Uptime {
    world: Arc<World>,
    outside: Outside,
    /// The ids of the monitors.
    ids: Vec<String>,
    random: Mutex<Random>,
}

/// The section of `hob.toml`.
pub(crate) fn config() -> String {
    "[uptime]\nalert_backoff = \"1s\"\nalert_attempts = 20\n".to_owned()
}

/// When a monitor's target fails.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Habit {
    /// Fails under faults, and recovers in the calm.
    FailsUnderFaults,
    /// Fails in the calm, and recovers under faults.
    RecoversUnderFaults,
}

fn habit(monitor: usize) -> Habit {
    if monitor.is_multiple_of(2) { Habit::FailsUnderFaults } else { Habit::RecoversUnderFaults }
}

impl Uptime {
    /// Starts the targets and adds the channel and the monitors.
    pub(crate) async fn start(world: &Arc<World>, seed: u64) -> Result<Self> {
        let outside = Outside::start(MONITORS).await?;
        let api = world.nodes[0].api;
        let channel = json!({ "name": "hook", "kind": "webhook", "url": outside.hook() });
        let added = world.http.post(api, "/api/v1/uptime/channels", &channel).await;
        anyhow::ensure!(added.ok(201).is_some(), "cannot add the channel");
        let mut ids = Vec::new();
        for monitor in 0..MONITORS {
            let spec = json!({
                "name": format!("monitor {monitor}"), "kind": "http", "target": outside.target(monitor),
                "interval_s": 2, "timeout_s": 2, "retries": 2, "retry_delay_s": 1, "down_interval_s": 2,
                "assertions": ["status == 200"], "channels": ["hook"],
            });
            let added = world.http.post(api, MONITORS_PATH, &spec).await.ok(201);
            let id = added.as_ref().and_then(|added| added["id"].as_str()).context("cannot add a monitor")?;
            ids.push(id.to_owned());
        }
        let random = Mutex::new(Random::new(seed, NAME));
        Ok(Self { world: Arc::clone(world), outside, ids, random })
    }

    /// Changes the target once, at a random time of the burst.
    async fn change(&self, monitor: usize, mut random: Random, stop: &CancellationToken) {
        pause(random.ms(1_000..20_000), stop).await;
        match habit(monitor) {
            Habit::FailsUnderFaults => self.outside.fail(monitor),
            Habit::RecoversUnderFaults => self.outside.recover(monitor),
        }
    }

    /// Waits until the incidents are open or resolved as the targets are, and reports if they are not in time.
    async fn wait_until_noticed(&self) {
        for monitor in 0..MONITORS {
            let noticed = within(NOTICED_WITHIN, async || {
                let open = self
                    .incidents(monitor)
                    .await?
                    .iter()
                    .filter(|incident| incident.resolved.is_none())
                    .count();
                let expected = usize::from(self.outside.is_failing(monitor));
                if open == expected {
                    Ok(())
                } else {
                    Err(format!("{open} open incidents instead of {expected}"))
                }
            });
            if let Err(what) = noticed.await {
                self.violate(monitor, &what);
            }
        }
    }

    /// The incidents of a monitor, the oldest first.
    async fn incidents(&self, monitor: usize) -> Result<Vec<Incident>, String> {
        let mut path = format!("/api/v1/uptime/incidents?monitor={}&limit=200", self.ids[monitor]);
        let mut all = Vec::new();
        loop {
            let page =
                self.world.http.get(self.world.nodes[1].api, &path).await.ok(200).ok_or("no response")?;
            let items = page["items"].as_array().into_iter().flatten();
            all.extend(items.map(incident).collect::<Result<Vec<_>, _>>()?);
            let Some(next) = page["next"].as_str() else { break };
            path = format!("/api/v1/uptime/incidents?monitor={}&limit=200&after={next}", self.ids[monitor]);
        }
        all.reverse();
        Ok(all)
    }

    /// Compares incidents and alerts with the outages.
    async fn compare(&self) {
        for monitor in 0..MONITORS {
            let compared = within(NOTICED_WITHIN, async || {
                let incidents = self.incidents(monitor).await?;
                compare(&self.outside.outages(monitor), &incidents, &self.outside.alerts())
            });
            if let Err(what) = compared.await {
                self.violate(monitor, &what);
            }
        }
    }

    fn violate(&self, monitor: usize, what: &str) {
        self.world.violations.add(NAME, format!("monitor {monitor}: {what}"));
    }
}

fn incident(json: &Value) -> Result<Incident, String> {
    let time = |name: &str| -> Result<Option<Timestamp>, String> {
        let text = json[name].as_str();
        text.map(|text| text.parse::<Timestamp>().map_err(|error| format!("{name}: {error}"))).transpose()
    };
    Ok(Incident {
        id: json["id"].as_str().unwrap_or_default().to_owned(),
        opened: time("opened_at")?.ok_or("an incident without opened_at")?,
        resolved: time("resolved_at")?,
    })
}

impl System for Uptime {
    fn name(&self) -> &'static str {
        NAME
    }

    fn drive(&self, stop: CancellationToken) -> LocalBoxFuture<'_, ()> {
        async move {
            let seeds = {
                let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
                [(); MONITORS].map(|()| random.next())
            };
            let changes = seeds.into_iter().enumerate();
            join_all(changes.map(|(monitor, seed)| self.change(monitor, Random::new(seed, "change"), &stop)))
                .await;
        }
        .boxed_local()
    }

    fn settle(&self) -> LocalBoxFuture<'_, ()> {
        async move {
            self.wait_until_noticed().await;
            let of = |habit_of: Habit| (0..MONITORS).filter(move |monitor| habit(*monitor) == habit_of);
            of(Habit::FailsUnderFaults).for_each(|monitor| self.outside.recover(monitor));
            self.wait_until_noticed().await;
            self.compare().await;
            of(Habit::RecoversUnderFaults).for_each(|monitor| self.outside.fail(monitor));
            self.wait_until_noticed().await;
        }
        .boxed_local()
    }

    fn counts(&self) -> Vec<(&'static str, u64)> {
        let outages = (0..MONITORS).map(|monitor| self.outside.outages(monitor).len() as u64).sum();
        let alerts = self.outside.alerts();
        let keys: std::collections::HashSet<&str> = alerts.iter().map(|alert| alert.key.as_str()).collect();
        vec![
            ("outages", outages),
            ("checks that targets served", self.outside.served()),
            ("alerts", keys.len() as u64),
            ("alerts that arrived again, with the same key", (alerts.len() - keys.len()) as u64),
        ]
    }
}
