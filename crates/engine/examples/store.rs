//! The engine alone, for `redis-cli`: `cargo run -p hob-engine --example store -- 127.0.0.1:7379`.

use std::net::SocketAddr;

use hob_engine::{Engine, Listener};

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let address: SocketAddr = std::env::args()
        .nth(1)
        .as_deref()
        .unwrap_or("127.0.0.1:7379")
        .parse()
        .map_err(std::io::Error::other)?;
    let engine = Engine::default();
    let listener = Listener::bind(engine.clone(), address).await?;
    tokio::select! {
        () = engine.keep_swept() => {}
        () = listener.serve(async { drop(tokio::signal::ctrl_c().await) }) => {}
    }
    Ok(())
}
