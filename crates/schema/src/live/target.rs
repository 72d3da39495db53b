//! From a URL to the servers that hold the keys: one, or every master of a Cluster.

use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, Pipeline,
    RedisResult, Value as Reply,
};

use crate::error::Error;

/// A pipeline of a busy server may take long; a dead one is given up after this.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// One server that holds keys.
#[derive(Clone, Debug)]
pub struct Node<C = MultiplexedConnection> {
    /// `host:port`, for messages.
    pub name: String,
    pub connection: C,
}

/// Connects to `redis://…`, `rediss://…`, `redis+unix://…` or `redis+cluster://host:port,…`. A server that is
/// part of a Cluster stands for all of its masters.
pub async fn connect(url: &str) -> Result<Vec<Node>, Error> {
    let first = seeds(url)?;
    // Never the URL itself: it may hold a password.
    let mut problem = Error::Refused("the address names no server".to_owned());
    for info in first {
        match connect_node(&info).await {
            Ok(node) => return masters(&info, node).await,
            Err(error) => problem = error,
        }
    }
    Err(problem)
}

/// The addresses that a URL names.
fn seeds(url: &str) -> Result<Vec<ConnectionInfo>, Error> {
    let urls = match url.split_once("+cluster://") {
        None => vec![url.to_owned()],
        Some((scheme, rest)) => {
            let (credentials, hosts) =
                rest.rsplit_once('@').map_or(("", rest), |(user, hosts)| (user, hosts));
            let at = if credentials.is_empty() { String::new() } else { format!("{credentials}@") };
            hosts.split(',').map(|host| format!("{scheme}://{at}{host}")).collect()
        }
    };
    urls.into_iter().map(|url| url.into_connection_info().map_err(failed("the address"))).collect()
}

async fn connect_node(info: &ConnectionInfo) -> Result<Node, Error> {
    let info = info.clone().set_tcp_settings(TcpSettings::default().set_nodelay(true));
    let name = info.addr().to_string();
    let config = AsyncConnectionConfig::new()
        .set_response_timeout(Some(ANSWER_LIMIT))
        .set_connection_timeout(Some(CONNECT_LIMIT));
    let client = Client::open(info).map_err(failed(&name))?;
    let connection =
        client.get_multiplexed_async_connection_with_config(&config).await.map_err(failed(&name))?;
    Ok(Node { name, connection })
}

/// The node itself, or all masters if it belongs to a Cluster.
async fn masters(info: &ConnectionInfo, mut node: Node) -> Result<Vec<Node>, Error> {
    let facts: String = redis::cmd("INFO")
        .arg("cluster")
        .query_async(&mut node.connection)
        .await
        .map_err(failed("INFO cluster"))?;
    if !facts.contains("cluster_enabled:1") {
        return Ok(vec![node]);
    }
    let table: String = redis::cmd("CLUSTER")
        .arg("NODES")
        .query_async(&mut node.connection)
        .await
        .map_err(failed("CLUSTER NODES"))?;
    let mut nodes = Vec::new();
    for (host, port) in master_addresses(&table) {
        let host = if host.is_empty() { host_of(info.addr()) } else { host };
        let address = match info.addr() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
                ConnectionAddr::TcpTls { host, port, insecure: *insecure, tls_params: tls_params.clone() }
            }
            _ => ConnectionAddr::Tcp(host, port),
        };
        nodes.push(connect_node(&info.clone().set_addr(address)).await?);
    }
    if nodes.is_empty() {
        return Err(Error::Refused("the Cluster has no master with slots".into()));
    }
    Ok(nodes)
}

/// Host and port of each master that serves slots, from the text of CLUSTER NODES.
fn master_addresses(table: &str) -> Vec<(String, u16)> {
    table
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ');
            let (address, flags) = (words.nth(1)?, words.next()?);
            let serves = words.nth(5).is_some();
            let gone = flags.split(',').any(|flag| matches!(flag, "fail" | "noaddr" | "handshake"));
            if !flags.split(',').any(|flag| flag == "master") || gone || !serves {
                return None;
            }
            let (host, port) = address.split('@').next()?.rsplit_once(':')?;
            Some((host.to_owned(), port.parse().ok()?))
        })
        .collect()
}

fn host_of(address: &ConnectionAddr) -> String {
    match address {
        ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => host.clone(),
        _ => "127.0.0.1".to_owned(),
    }
}

/// The replies of a pipeline, `None` where a key has another type or has moved to another node since it was scanned.
/// Any other refusal is an error: what cannot be read, for lack of a permission for instance, must not pass for fine.
pub(super) async fn ask<C: ConnectionLike>(
    mut pipe: Pipeline,
    connection: &mut C,
) -> Result<Vec<Option<Reply>>, Error> {
    if pipe.is_empty() {
        return Ok(Vec::new());
    }
    let replies: Vec<RedisResult<Reply>> =
        pipe.ignore_errors().query_async(connection).await.map_err(failed("a pipeline"))?;
    pipe.cmd_iter().zip(replies).map(|(command, reply)| answer(command, reply)).collect()
}

fn answer(command: &Cmd, reply: RedisResult<Reply>) -> Result<Option<Reply>, Error> {
    let error = match reply {
        Ok(reply) => return Ok(Some(reply)),
        Err(error) => error,
    };
    let name = command.args_iter().find_map(|arg| match arg {
        redis::Arg::Simple(name) => Some(String::from_utf8_lossy(name)),
        _ => None,
    });
    let name = name.unwrap_or_default();
    // Not every server that speaks Redis's protocol can say how much memory a key takes.
    let unsupported = name == "MEMORY" && error.detail().is_some_and(|text| text.contains("unknown"));
    match error.code() {
        Some("WRONGTYPE" | "MOVED" | "ASK") => Ok(None),
        _ if unsupported => Ok(None),
        _ => Err(failed(&name)(error)),
    }
}

pub(super) fn failed(what: &str) -> impl FnOnce(redis::RedisError) -> Error + use<> {
    let what = what.to_owned();
    move |source| Error::Redis { what, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_url_names_each_seed_with_its_credentials() {
        let seeds = seeds("redis+cluster://:secret@a:1,b:2").unwrap();
        let names: Vec<String> = seeds.iter().map(|info| info.addr().to_string()).collect();
        assert_eq!(names, ["a:1", "b:2"]);
        assert!(seeds.iter().all(|info| info.redis_settings().password() == Some("secret")));
    }

    #[test]
    fn only_masters_that_serve_slots_are_visited() {
        let table = "a1 10.0.0.1:7000@17000,host myself,master - 0 0 1 connected 0-5460\n\
                     a2 10.0.0.2:7001@17001 slave a1 0 0 1 connected\n\
                     a3 10.0.0.3:7002@17002 master - 0 0 2 connected\n\
                     a4 10.0.0.4:7003@17003 master,fail - 0 0 2 connected 5461-9\n\
                     a5 [::1]:7004@17004 master - 0 0 2 connected 5461-16383\n";
        assert_eq!(master_addresses(table), [("10.0.0.1".to_owned(), 7000), ("[::1]".to_owned(), 7004)]);
    }
}
