//! Asks sentinels for the address of the master.

use std::time::Duration;

use redis::aio::ConnectionLike;
use redis::{FromRedisValue, RedisError, Value};
use tokio::time::timeout;

use crate::address::Host;
use crate::connection::dial::Dialer;

/// The timeout for one sentinel, after which the next one is asked.
const ASK_LIMIT: Duration = Duration::from_secs(1);

/// The sentinels of one master.
#[derive(Clone)]
pub(crate) struct Sentinels {
    hosts: Vec<Host>,
    master: String,
}

impl Sentinels {
    pub(crate) fn new(hosts: Vec<Host>, master: String) -> Self {
        Self { hosts, master }
    }

    /// The master reported by the first sentinel that answers. If none answers, the error lists the reply of each
    /// sentinel.
    pub(crate) async fn master(&self, dialer: &Dialer) -> Result<Host, String> {
        let mut said = Vec::new();
        for host in &self.hosts {
            match self.ask(host, dialer).await {
                Ok(Some(master)) => return Ok(master),
                Ok(None) => said.push(format!("{host} does not know the master {:?}", self.master)),
                Err(reason) => said.push(format!("{host}: {reason}")),
            }
        }
        Err(format!("no sentinel reported the master: {}", said.join("; ")))
    }

    /// Many sentinels have no password even if their master has one, and refuse connections that send a password. So
    /// the password is sent only if the sentinel asks for it.
    async fn ask(&self, host: &Host, dialer: &Dialer) -> Result<Option<Host>, String> {
        match self.query(host, &dialer.anonymous()).await {
            Err(error) if error.code() == Some("NOAUTH") => {
                self.query(host, &dialer.without_database()).await.map_err(|error| error.to_string())
            }
            answer => answer.map_err(|error| error.to_string()),
        }
    }

    async fn query(&self, host: &Host, dialer: &Dialer) -> Result<Option<Host>, RedisError> {
        let question = async {
            let (mut connection, driver) = dialer.commands(host).await?;
            let mut command = redis::cmd("SENTINEL");
            command.arg("get-master-addr-by-name").arg(&self.master);
            tokio::select! {
                answer = connection.req_packed_command(&command) => answer?.extract_error(),
                () = driver => Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset).into()),
            }
        };
        let limit = std::io::Error::from(std::io::ErrorKind::TimedOut);
        match timeout(ASK_LIMIT, question).await.map_err(|_| limit)?? {
            Value::Nil => Ok(None),
            answer => {
                let (name, port) = <(String, u16)>::from_redis_value(answer)?;
                Ok(Some(Host { name, port }))
            }
        }
    }
}
