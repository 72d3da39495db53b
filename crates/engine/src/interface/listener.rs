//! The listener for all other clients: RESP2 and RESP3 over TCP or a Unix socket.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use hob_units::AuthThrottle;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::client_session::{ClientSession, Pause};
use super::encode::encode;
use super::outgoing::{MAX_OUTPUT_BYTES, Outgoing};
use crate::blocked::Pending;
use crate::engine::Engine;
use crate::hub::MessageReceiver;
use crate::reply::Reply;
use crate::session::{Client, Session, SessionOrigin};

const READ_BYTES: usize = 16 * 1024;

/// Accepts clients of an engine.
#[derive(Debug)]
pub struct Listener {
    engine: Engine,
    socket: Socket,
    throttle: AuthThrottle,
}

/// The two ends of a connection, as `CLIENT LIST` shows them, and the address whose passwords are throttled.
struct Ends {
    peer: String,
    local: String,
    throttled: Option<(AuthThrottle, IpAddr)>,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    /// Listens on a TCP address. Without a password, only a loopback address is allowed.
    pub async fn bind(engine: Engine, address: SocketAddr) -> io::Result<Listener> {
        let open = engine.with_core(|core| core.settings.password.is_none());
        if open && !address.ip().is_loopback() {
            let text = format!(
                "cannot listen on {address} without a password; set a password or bind a loopback address"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let socket = Socket::Tcp(TcpListener::bind(address).await?);
        Ok(Listener { engine, socket, throttle: AuthThrottle::default() })
    }

    pub fn bind_unix(engine: Engine, path: &Path) -> io::Result<Listener> {
        let socket = Socket::Unix(UnixListener::bind(path)?);
        Ok(Listener { engine, socket, throttle: AuthThrottle::default() })
    }

    /// Counts the wrong passwords of TCP clients with this throttle, which the program uses for other credentials as well.
    #[must_use]
    pub fn with_throttle(self, throttle: AuthThrottle) -> Listener {
        Listener { throttle, ..self }
    }

    /// The address, if it is a TCP address.
    pub fn address(&self) -> Option<SocketAddr> {
        match &self.socket {
            Socket::Tcp(listener) => listener.local_addr().ok(),
            Socket::Unix(_) => None,
        }
    }

    /// Serves clients until `shutdown` completes; then closes all connections and stops their scripts.
    pub async fn serve(self, shutdown: impl Future<Output = ()>) {
        tokio::pin!(shutdown);
        let mut clients = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                () = &mut shutdown => break,
                Some(_) = clients.join_next() => continue,
                accepted = self.accept() => accepted,
            };
            match accepted {
                Ok(client) => drop(clients.spawn(client)),
                Err(error) => {
                    // Most likely out of file descriptors: wait for connections to close.
                    tracing::warn!(%error, "failed to accept a client connection");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
        clients.shutdown().await;
        self.engine.stop_client_scripts().await;
    }

    /// Waits for the next client; returns the future that serves it.
    async fn accept(&self) -> io::Result<Pin<Box<dyn Future<Output = ()> + Send>>> {
        let engine = self.engine.clone();
        match &self.socket {
            Socket::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                stream.set_nodelay(true)?;
                let throttled = Some((self.throttle.clone(), peer.ip()));
                let ends =
                    Ends { peer: peer.to_string(), local: stream.local_addr()?.to_string(), throttled };
                Ok(Box::pin(serve_client(engine, stream, ends)))
            }
            Socket::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                let local = listener.local_addr()?;
                let path = local.as_pathname().map_or("unix".into(), |path| path.display().to_string());
                let ends = Ends { peer: format!("{path}:0"), local: path, throttled: None };
                Ok(Box::pin(serve_client(engine, stream, ends)))
            }
        }
    }
}

async fn serve_client<S>(engine: Engine, mut stream: S, ends: Ends)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let kill = Arc::new(Notify::new());
    let Some((session, incoming)) = register(&engine, &kill, ends) else {
        let _ = stream.write_all(b"-ERR max number of clients reached\r\n").await;
        return;
    };
    let mut connection = ClientConnection { stream, client: ClientSession::new(engine, session, incoming) };
    tokio::select! {
        () = kill.notified() => {}
        ended = connection.run() => if let Err(error) = ended {
            tracing::debug!(%error, "client connection failed");
        },
    }
}

fn register(engine: &Engine, kill: &Arc<Notify>, ends: Ends) -> Option<(Session, MessageReceiver)> {
    engine.with_core(|core| {
        if core.clients.connected.len() >= core.settings.max_clients {
            core.clients.rejected += 1;
            return None;
        }
        let now_us = core.settings.clock.now_us();
        let id = core.clients.next_id();
        let client = Client::new(ends.peer, ends.local, now_us, Arc::clone(kill));
        core.clients.add(id, client);
        let limits = core.settings.subscriber_limits;
        let (sender, incoming) = core.hub.message_queue(limits, Some(Arc::clone(kill)));
        let open = core.settings.password.is_none();
        let mut session = Session::new(id, SessionOrigin::Socket, open, Some(sender));
        session.set_authenticated(open, core);
        session.throttle = ends.throttled;
        Some((session, incoming))
    })
}

struct ClientConnection<S> {
    stream: S,
    client: ClientSession,
}

impl<S: AsyncRead + AsyncWrite + Unpin> ClientConnection<S> {
    async fn run(&mut self) -> io::Result<()> {
        loop {
            self.execute_requests().await?;
            self.flush().await?;
            if self.client.session.closing {
                return self.close().await;
            }
            if self.client.input.is_empty() && self.client.input.capacity() > MAX_OUTPUT_BYTES {
                // An idle client must not keep the memory of an earlier large request.
                self.client.input = BytesMut::new();
            }
            self.client.input.reserve(READ_BYTES);
            tokio::select! {
                read = self.stream.read_buf(&mut self.client.input) => if read? == 0 { return Ok(()) },
                delivery = self.client.outgoing.incoming.recv() => match delivery {
                    Some(delivery) => self.client.push_messages(delivery),
                    None => return Ok(()),
                },
            }
        }
    }

    /// Runs every complete request that has arrived.
    async fn execute_requests(&mut self) -> io::Result<()> {
        loop {
            if let Some(pending) = self.client.pending() {
                let reply = self.wait(pending).await?;
                encode(&reply, self.client.session.protocol, &mut self.client.outgoing.output);
            }
            match self.client.run_ready() {
                Pause::Idle if self.client.session.blocked.is_some() => {}
                Pause::Idle => return Ok(()),
                Pause::OutputFull => self.flush().await?,
                Pause::Locked => self.client.run_locked().await,
                Pause::Script => {
                    let ran = self.client.run_script().await;
                    ran.ok_or_else(|| io::Error::other("the command panicked"))?;
                }
            }
        }
    }

    /// Waits for the reply to a blocking command. Meanwhile messages are delivered, further requests are read but not
    /// run, and the end of the connection ends the wait.
    async fn wait(&mut self, mut pending: Pending) -> io::Result<Reply> {
        let max_input_bytes = self.client.engine.with_core(|core| core.settings.max_command_bytes);
        while !self.client.session.closing {
            self.flush().await?;
            self.client.input.reserve(READ_BYTES);
            tokio::select! {
                reply = pending.reply() => return Ok(reply),
                read = self.stream.read_buf(&mut self.client.input) => {
                    if read? == 0 || self.client.input.len() > max_input_bytes {
                        return Err(io::ErrorKind::ConnectionAborted.into());
                    }
                }
                delivery = self.client.outgoing.incoming.recv() => match delivery {
                    Some(delivery) => self.client.push_messages(delivery),
                    None => return Err(io::ErrorKind::ConnectionAborted.into()),
                },
            }
        }
        Ok(Reply::Nothing)
    }

    /// Disconnects first, so that a client whose connection is closed is no longer in the list.
    async fn close(&mut self) -> io::Result<()> {
        self.client.disconnect();
        self.stream.shutdown().await
    }

    async fn flush(&mut self) -> io::Result<()> {
        let Outgoing { output, incoming } = &mut self.client.outgoing;
        if !output.is_empty() {
            self.stream.write_all(output).await?;
            output.clear();
            output.shrink_to(MAX_OUTPUT_BYTES);
            incoming.processed();
        }
        Ok(())
    }
}
