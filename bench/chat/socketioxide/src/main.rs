//! A room server like `../src/socketio.js`, with socketioxide: a client names its room when it connects, and what it sends goes to
//! all clients in this room, on all nodes. The argument is the URL of Redis; the output is the address.

use serde::Deserialize;
use socketioxide::SocketIo;
use socketioxide::adapter::Adapter;
use socketioxide::extract::{AckSender, Data, SocketRef};
use socketioxide_redis::{RedisAdapter, RedisAdapterCtr};

#[derive(Deserialize)]
struct Credentials {
    room: String,
}

async fn on_connect<A: Adapter>(socket: SocketRef<A>, Data(Credentials { room }): Data<Credentials>) {
    socket.join(room.clone());
    socket.on("send", async move |socket: SocketRef<A>, Data(content): Data<String>, ack: AckSender<A>| {
        let _ = socket.within(room).emit("message", &content).await;
        let _ = ack.send(&());
    });
    let _ = socket.emit("joined", &());
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).ok_or("usage: bench-chat-socketioxide REDIS_URL")?;
    let redis = redis::Client::open(format!("{url}?protocol=resp3"))?;
    let adapter = RedisAdapterCtr::new_with_redis(&redis).await?;
    let (layer, io) = SocketIo::builder().with_adapter::<RedisAdapter<_>>(adapter).build_layer();
    io.ns("/", on_connect).await?;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    axum::serve(listener, axum::Router::new().layer(layer)).await?;
    Ok(())
}
