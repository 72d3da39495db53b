//! The map of a Cluster as its clients ask for it, with addresses of the proxy.

use std::fmt::Write as _;

use hob_store::{FromRedisValue, Host, Store, Value, cmd};

/// A range of slots and the servers that have it, the master first.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SlotRange {
    first: u16,
    last: u16,
    servers: Vec<(Host, String)>,
}

/// Asks a server for its map. A server that does not report its own host has the host `asked`.
pub(crate) async fn slot_ranges(store: &Store, asked: &str) -> hob_store::Result<Vec<SlotRange>> {
    let reply: Vec<Vec<Value>> = store.run(cmd("CLUSTER").arg("SLOTS")).await?;
    Ok(reply.into_iter().filter_map(|entry| SlotRange::read(entry, asked)).collect())
}

impl SlotRange {
    fn read(entry: Vec<Value>, asked: &str) -> Option<SlotRange> {
        let mut entry = entry.into_iter();
        let first = u16::from_redis_value(entry.next()?).ok()?;
        let last = u16::from_redis_value(entry.next()?).ok()?;
        let servers = entry.filter_map(|server| read_server(server, asked)).collect();
        Some(SlotRange { first, last, servers })
    }

    pub(crate) fn hosts(&self) -> impl Iterator<Item = &Host> {
        self.servers.iter().map(|(host, _)| host)
    }
}

fn read_server(server: Value, asked: &str) -> Option<(Host, String)> {
    let mut fields = Vec::<Value>::from_redis_value(server).ok()?.into_iter();
    let name = Option::<String>::from_redis_value(fields.next()?).ok()?;
    let name = name.filter(|name| !name.is_empty() && name != "?").unwrap_or_else(|| asked.to_owned());
    let port = u16::from_redis_value(fields.next()?).ok()?;
    let id = String::from_redis_value(fields.next()?).ok()?;
    Some((Host { name, port }, id))
}

/// The reply to `CLUSTER SLOTS`. Servers without an address are left out.
pub(crate) fn slots_reply(ranges: &[SlotRange], address: impl Fn(&Host) -> Option<(String, u16)>) -> String {
    let mut reply = format!("*{}\r\n", ranges.len());
    for range in ranges {
        let servers: Vec<(String, u16, &str)> = range
            .servers
            .iter()
            .filter_map(|(host, id)| address(host).map(|(name, port)| (name, port, id.as_str())))
            .collect();
        let _ = write!(reply, "*{}\r\n:{}\r\n:{}\r\n", servers.len() + 2, range.first, range.last);
        for (name, port, id) in servers {
            let _ = write!(reply, "*3\r\n${}\r\n{name}\r\n:{port}\r\n${}\r\n{id}\r\n", name.len(), id.len());
        }
    }
    reply
}

/// The reply to `CLUSTER NODES`: a line for each server, whose second word is `host:port@bus`.
pub(crate) fn nodes_reply(
    text: &str,
    asked: &str,
    address: impl Fn(&Host) -> Option<(String, u16)>,
) -> String {
    let line = |line: &str| -> String {
        let mut words: Vec<&str> = line.split(' ').collect();
        let host = words.get(1).and_then(|word| parse_host(word.split('@').next()?, asked));
        let Some((name, port)) = host.and_then(|host| address(&host)) else {
            return line.to_owned();
        };
        let replaced = format!("{name}:{port}@0");
        words[1] = &replaced;
        words.join(" ")
    };
    let text: String = text.lines().map(|text| line(text) + "\n").collect();
    format!("${}\r\n{text}\r\n", text.len())
}

/// `host:port`; IPv6 addresses have no brackets here. Without a host, it is `asked`.
pub(crate) fn parse_host(text: &str, asked: &str) -> Option<Host> {
    let (name, port) = text.rsplit_once(':')?;
    let name = if name.is_empty() { asked } else { name };
    Some(Host { name: name.to_owned(), port: port.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn maps_have_the_addresses_of_the_proxy() {
        let server = |name: &str, port, id: &str| Value::Array(vec![bulk(name), Value::Int(port), bulk(id)]);
        let entry =
            vec![Value::Int(0), Value::Int(100), server("", 7001, "a"), server("10.0.0.2", 7002, "b")];
        let range = SlotRange::read(entry, "10.0.0.1").unwrap();
        let hosts: Vec<String> = range.hosts().map(ToString::to_string).collect();
        assert_eq!(hosts, ["10.0.0.1:7001", "10.0.0.2:7002"]);
        let address = |host: &Host| (host.port == 7001).then(|| ("::1".to_owned(), 9000));
        let expected = "*1\r\n*3\r\n:0\r\n:100\r\n*3\r\n$3\r\n::1\r\n:9000\r\n$1\r\na\r\n";
        assert_eq!(slots_reply(&[range], address), expected);
        let text = "a :7001@17001 myself,master - 0 0 1 connected 0-100\nb 10.0.0.2:7002@17002,h slave a 0 0 1 connected\n";
        let reply = nodes_reply(text, "10.0.0.1", address);
        assert!(
            reply.contains("a ::1:9000@0 myself,master - 0 0 1 connected 0-100\nb 10.0.0.2:7002@"),
            "{reply}"
        );
    }
}
