//! The links between the parts of a deployment: a TCP proxy in front of every server, which finds out which process
//! connects, and can cut, slow down or silence each link. This needs no privileges.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// The end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Party {
    Node(usize),
    /// A Redis server by its number.
    Redis(usize),
    Postgres,
}

/// What a link does with its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    /// Closes connections, and new ones too.
    Cut,
    /// Delays each packet.
    Slow(Duration),
    /// Drops packets. Connections of this time stay dead when the condition ends, as after the reset of a firewall.
    Silent,
}

type Conditions = HashMap<(Party, Party), Condition>;

/// All links of a deployment.
#[derive(Clone, Debug)]
pub(crate) struct Links {
    conditions: Arc<watch::Sender<Conditions>>,
    /// Which process is which party.
    processes: Arc<Mutex<HashMap<u32, Party>>>,
}

/// The address of a server as the other parties see it, before the server runs.
#[derive(Debug)]
pub(crate) struct Entrance {
    listener: TcpListener,
    pub(crate) port: u16,
}

impl Entrance {
    pub(crate) async fn open() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        Ok(Self { listener, port })
    }
}

impl Links {
    pub(crate) fn new() -> Self {
        Self { conditions: Arc::new(watch::Sender::default()), processes: Arc::default() }
    }

    /// Says which party a process is. Connections of unknown processes are never disturbed.
    pub(crate) fn register(&self, process: u32, party: Party) {
        let mut processes = self.processes.lock().unwrap_or_else(PoisonError::into_inner);
        processes.retain(|_, known| *known != party);
        processes.insert(process, party);
    }

    /// Sets what happens on the link between two parties; `None` restores it.
    pub(crate) fn set(&self, from: Party, to: Party, condition: Option<Condition>) {
        self.conditions.send_modify(|conditions| {
            match condition {
                Some(condition) => conditions.insert((from, to), condition),
                None => conditions.remove(&(from, to)),
            };
        });
    }

    /// Forwards connections to `party`, which listens on `port`, until the runtime ends.
    pub(crate) fn forward(&self, entrance: Entrance, party: Party, port: u16) {
        let links = self.clone();
        tokio::spawn(async move {
            loop {
                let Ok((client, address)) = entrance.listener.accept().await else { continue };
                let links = links.clone();
                tokio::spawn(async move {
                    let link = Link {
                        conditions: links.conditions.subscribe(),
                        ports: (address.port(), entrance.port),
                        to: party,
                        from: Arc::default(),
                        links,
                    };
                    let _ = carry(client, port, link).await;
                });
            }
        });
    }

    /// The party whose process has the socket that connects from `local` to `remote`.
    fn owner(&self, local: u16, remote: u16) -> Option<Party> {
        let table = fs::read_to_string("/proc/net/tcp").ok()?;
        let socket = ["socket:[", inode(&table, local, remote)?, "]"].concat();
        let processes = self.processes.lock().unwrap_or_else(PoisonError::into_inner).clone();
        processes.into_iter().find(|(process, _)| holds(*process, &socket)).map(|(_, party)| party)
    }
}

/// One connection's view of its link.
#[derive(Clone)]
struct Link {
    links: Links,
    conditions: watch::Receiver<Conditions>,
    /// The ports of the connection: that of the client, and that of the entrance.
    ports: (u16, u16),
    to: Party,
    /// Who has connected. Found only when a link to the server is disturbed: it takes milliseconds, and servers that recover
    /// get hundreds of connections at once.
    from: Arc<OnceLock<Option<Party>>>,
}

impl Link {
    fn condition(&mut self) -> Option<Condition> {
        let conditions = self.conditions.borrow_and_update();
        if !conditions.keys().any(|(_, to)| *to == self.to) {
            return None;
        }
        let from = self.from.get_or_init(|| self.links.owner(self.ports.0, self.ports.1));
        conditions.get(&((*from)?, self.to)).copied()
    }
}

/// Forwards both directions until one side closes or the link is cut.
async fn carry(client: TcpStream, port: u16, mut link: Link) -> io::Result<()> {
    if link.condition() == Some(Condition::Cut) {
        return Ok(());
    }
    let server = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let dead = AtomicBool::new(false);
    tokio::select! {
        ended = pump(from_client, to_server, link.clone(), &dead) => ended,
        // The client of a dead connection does not learn that the server has closed it.
        ended = async {
            let ended = pump(from_server, to_client, link, &dead).await;
            if dead.load(Ordering::SeqCst) { std::future::pending().await } else { ended }
        } => ended,
    }
}

/// Forwards one direction. `dead` is shared with the other one.
async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut link: Link,
    dead: &AtomicBool,
) -> io::Result<()> {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        tokio::select! {
            read = from.read(&mut buffer) => {
                let length = read?;
                if length == 0 {
                    return Ok(());
                }
                match link.condition() {
                    Some(Condition::Cut) => return Ok(()),
                    Some(Condition::Silent) => dead.store(true, Ordering::SeqCst),
                    Some(Condition::Slow(delay)) => tokio::time::sleep(delay).await,
                    None => {}
                }
                if !dead.load(Ordering::SeqCst) {
                    to.write_all(&buffer[..length]).await?;
                }
            }
            _ = link.conditions.changed() => match link.condition() {
                Some(Condition::Cut) => return Ok(()),
                Some(Condition::Silent) => dead.store(true, Ordering::SeqCst),
                Some(Condition::Slow(_)) | None => {}
            }
        }
    }
}

/// The inode of the socket with these ports in the text of `/proc/net/tcp`.
fn inode(table: &str, local: u16, remote: u16) -> Option<&str> {
    table.lines().skip(1).find_map(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let port = |address: &str| u16::from_str_radix(address.split_once(':')?.1, 16).ok();
        let matches = port(fields.next()?)? == local && port(fields.next()?)? == remote;
        // After the state: queues, timer, retransmissions, user, timeout.
        if matches { fields.nth(6) } else { None }
    })
}

fn holds(process: u32, socket: &str) -> bool {
    let Ok(files) = fs::read_dir(format!("/proc/{process}/fd")) else { return false };
    files.flatten().any(|file| fs::read_link(file.path()).is_ok_and(|target| target.as_os_str() == socket))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};

    use super::{Condition, Entrance, Links, Party, inode};

    const LIMIT: Duration = Duration::from_secs(30);

    /// A link from this process, as node 0, to a server that echoes.
    async fn echo() -> (Links, u16) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut from, mut to) = stream.split();
                    let _ = tokio::io::copy(&mut from, &mut to).await;
                });
            }
        });
        let links = Links::new();
        links.register(std::process::id(), Party::Node(0));
        let entrance = Entrance::open().await.unwrap();
        let public = entrance.port;
        links.forward(entrance, Party::Postgres, port);
        (links, public)
    }

    async fn answers(stream: &mut TcpStream) -> bool {
        stream.write_all(b"ping").await.is_ok() && {
            let mut answer = [0; 4];
            tokio::time::timeout(LIMIT, stream.read_exact(&mut answer)).await.is_ok_and(|read| read.is_ok())
        }
    }

    #[tokio::test]
    async fn cut_link_closes_connections_and_is_restored() {
        let (links, port) = echo().await;
        let mut before = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        assert!(answers(&mut before).await);
        links.set(Party::Node(0), Party::Postgres, Some(Condition::Cut));
        assert!(!answers(&mut before).await);
        let mut during = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        assert!(!answers(&mut during).await);
        links.set(Party::Node(0), Party::Postgres, None);
        let mut after = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        assert!(answers(&mut after).await);
    }

    #[tokio::test]
    async fn connection_of_a_silent_link_stays_dead() {
        let (links, port) = echo().await;
        let mut before = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        assert!(answers(&mut before).await);
        links.set(Party::Node(0), Party::Postgres, Some(Condition::Silent));
        before.write_all(b"lost").await.unwrap();
        let silent = tokio::time::timeout(Duration::from_millis(300), before.read_u8()).await;
        assert!(silent.is_err(), "{silent:?}");
        links.set(Party::Node(0), Party::Postgres, None);
        before.write_all(b"lost").await.unwrap();
        let dead = tokio::time::timeout(Duration::from_millis(300), before.read_u8()).await;
        assert!(dead.is_err(), "{dead:?}");
        let mut after = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        assert!(answers(&mut after).await);
    }

    #[tokio::test]
    async fn link_of_another_party_is_not_disturbed() {
        let (links, port) = echo().await;
        links.set(Party::Node(1), Party::Postgres, Some(Condition::Cut));
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        assert!(answers(&mut stream).await);
    }

    #[test]
    fn socket_is_found_by_its_ports() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
            0: 0100007F:1F90 0100007F:C350 01 00000000:00000000 00:00000000 00000000     0        0 11111 1 0 20 4\n   \
            1: 0100007F:C350 0100007F:1F90 01 00000000:00000000 00:00000000 00000000     0        0 22222 1 0 20 4\n";
        assert_eq!(inode(table, 0xC350, 0x1F90), Some("22222"));
        assert_eq!(inode(table, 0xC350, 0x1F91), None);
    }
}
