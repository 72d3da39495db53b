//! The target: sends a fixed response and closes the connection.

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const RESPONSE: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 3\r\nconnection: close\r\n\r\nok\n";

/// Prints its URL and serves until it is killed.
pub(crate) async fn serve() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("http://{}/", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(respond(stream));
    }
}

async fn respond(mut stream: TcpStream) -> std::io::Result<()> {
    let mut request = [0; 4096];
    let mut length = 0;
    while !request[..length].ends_with(b"\r\n\r\n") && length < request.len() {
        match stream.read(&mut request[length..]).await? {
            0 => return Ok(()),
            more => length += more,
        }
    }
    stream.write_all(RESPONSE).await?;
    stream.shutdown().await
}
