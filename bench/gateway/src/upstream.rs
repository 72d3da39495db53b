//! The upstream of every proxy: the same response to every request, as fast as possible.

use std::net::SocketAddr;
use std::sync::mpsc;

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: keep-alive\r\n\
                        Content-Length: 64\r\n\r\n0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// Serves on its own thread, forever.
pub(crate) fn start() -> Result<SocketAddr> {
    let (bound, address) = mpsc::channel();
    std::thread::spawn(move || -> Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            bound.send(listener.local_addr()?)?;
            loop {
                let (stream, _) = listener.accept().await?;
                tokio::spawn(serve(stream));
            }
        })
    });
    Ok(address.recv()?)
}

async fn serve(mut stream: TcpStream) {
    let _ = stream.set_nodelay(true);
    let mut head = [0; 4096];
    let mut filled = 0;
    loop {
        match stream.read(&mut head[filled..]).await {
            Ok(read) if read > 0 => filled += read,
            _ => return,
        }
        if head[..filled].ends_with(b"\r\n\r\n") {
            filled = 0;
            if stream.write_all(RESPONSE).await.is_err() {
                return;
            }
        }
    }
}
