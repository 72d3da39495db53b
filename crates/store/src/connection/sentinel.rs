//! Asks sentinels for the address of the master, and notices when it changes.
//!
//! All sentinels are asked, and the answer with the highest configuration epoch counts: for a few seconds after a failover
//! some sentinels still report the old master.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::aio::MultiplexedConnection;
use redis::{FromRedisValue, RedisError, Value};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::address::Host;
use crate::connection::dial::Dialer;

/// The timeout for one sentinel.
const ASK_LIMIT: Duration = Duration::from_secs(1);
/// How long to wait for the other sentinels after the first answer.
const OTHERS_LIMIT: Duration = Duration::from_millis(100);
/// How often the sentinels are asked while there is a connection to the master. After a planned failover the old master
/// accepts writes for seconds, which are then lost.
const ASK_EVERY: Duration = Duration::from_millis(500);

/// The sentinels of one master.
#[derive(Clone)]
pub(crate) struct Sentinels {
    hosts: Vec<Host>,
    master: String,
}

/// The answer of a sentinel.
struct Report {
    config_epoch: u64,
    master: Host,
}

impl Sentinels {
    pub(crate) fn new(hosts: Vec<Host>, master: String) -> Self {
        Self { hosts, master }
    }

    /// The master. If no sentinel reports one, the error lists the reply of each sentinel.
    pub(crate) async fn master(&self, dialer: &Dialer) -> Result<Host, String> {
        let mut masters = self.ask_all(&mut self.clients(), dialer).await?;
        Ok(masters.swap_remove(0))
    }

    /// Waits until the sentinels report another master than `current`.
    pub(crate) async fn other_master(&self, dialer: &Dialer, current: &Host) -> Host {
        let mut clients = self.clients();
        loop {
            sleep(ASK_EVERY).await;
            // The current master is kept if no sentinel answers, and as long as one with the latest configuration
            // still names it: sentinels may know one host by its address and by its name.
            let masters = self.ask_all(&mut clients, dialer).await.unwrap_or_default();
            if !masters.contains(current)
                && let Some(master) = masters.into_iter().next()
            {
                return master;
            }
        }
    }

    fn clients(&self) -> Vec<SentinelClient> {
        self.hosts.iter().map(|host| SentinelClient { host: host.clone(), open: None }).collect()
    }

    /// What the sentinels with the latest configuration report; at least one answer.
    async fn ask_all(&self, clients: &mut [SentinelClient], dialer: &Dialer) -> Result<Vec<Host>, String> {
        let mut answers: FuturesUnordered<_> =
            clients.iter_mut().map(|client| client.ask(&self.master, dialer)).collect();
        let (mut reports, mut said): (Vec<Report>, Vec<String>) = (Vec::new(), Vec::new());
        let mut deadline = Instant::now() + 2 * ASK_LIMIT;
        while let Ok(Some(answer)) = timeout_at(deadline, answers.next()).await {
            match answer {
                Ok(report) => {
                    deadline = deadline.min(Instant::now() + OTHERS_LIMIT);
                    reports.push(report);
                }
                Err(reason) => said.push(reason),
            }
        }
        let Some(latest) = reports.iter().map(|report| report.config_epoch).max() else {
            return Err(format!("no sentinel reported the master: {}", said.join("; ")));
        };
        reports.retain(|report| report.config_epoch == latest);
        Ok(reports.into_iter().map(|report| report.master).collect())
    }
}

/// A connection to one sentinel, opened when it is needed.
struct SentinelClient {
    host: Host,
    open: Option<OpenConnection>,
}

struct OpenConnection {
    connection: MultiplexedConnection,
    driver: AbortHandle,
}

impl SentinelClient {
    /// Many sentinels have no password even if their master has one, and refuse connections that send a password. So
    /// the password is sent only if the sentinel asks for it.
    async fn ask(&mut self, master: &str, dialer: &Dialer) -> Result<Report, String> {
        let host = self.host.clone();
        let answer = match self.query(master, &dialer.anonymous()).await {
            Err(error) if error.code() == Some("NOAUTH") => {
                self.open = None;
                self.query(master, &dialer.without_database()).await
            }
            answer => answer,
        };
        match answer {
            Ok(Some(report)) => Ok(report),
            Ok(None) => Err(format!("{host} does not know the master {master:?}")),
            Err(error) => {
                self.open = None;
                Err(format!("{host}: {error}"))
            }
        }
    }

    async fn query(&mut self, master: &str, dialer: &Dialer) -> Result<Option<Report>, RedisError> {
        let question = async {
            let mut open = match self.open.take() {
                Some(open) => open,
                None => OpenConnection::dial(&self.host, dialer).await?,
            };
            let report = open.query(master).await?;
            self.open = Some(open);
            Ok(report)
        };
        let limit = std::io::Error::from(std::io::ErrorKind::TimedOut);
        timeout(ASK_LIMIT, question).await.map_err(|_| limit)?
    }
}

impl OpenConnection {
    async fn dial(host: &Host, dialer: &Dialer) -> Result<Self, RedisError> {
        let (connection, driver) = dialer.commands(host).await?;
        Ok(Self { connection, driver: tokio::spawn(driver).abort_handle() })
    }

    /// The address is asked for separately, because only its command reports the new master during a failover.
    async fn query(&mut self, master: &str) -> Result<Option<Report>, RedisError> {
        let mut ask = redis::cmd("SENTINEL");
        ask.arg("get-master-addr-by-name").arg(master);
        let address: Option<(String, u16)> = ask.query_async(&mut self.connection).await?;
        let masters: Vec<Value> =
            redis::cmd("SENTINEL").arg("masters").query_async(&mut self.connection).await?;
        let Some((name, port)) = address else { return Ok(None) };
        let mut config_epoch = 0;
        for found in masters {
            let fields = std::collections::HashMap::<String, String>::from_redis_value(found)?;
            if fields.get("name").is_some_and(|name| name == master) {
                config_epoch = fields.get("config-epoch").and_then(|epoch| epoch.parse().ok()).unwrap_or(0);
            }
        }
        Ok(Some(Report { config_epoch, master: Host { name, port } }))
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}
