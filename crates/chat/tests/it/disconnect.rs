//! Sockets that are closed by request, on whichever node they are.

use hob_chat::keys::SocketId;
use hob_chat::{Chat, PresenceChange};
use hob_fixtures::{TestApp, TestContext, every_service};
use hob_service::ServiceContext;
use hob_store::cmd;
use hob_testkit::{LIMIT, wait_for};
use hob_web::Service as _;
use serde_json::{Value, json};

use crate::client::Client;
use crate::harness::{NEEDS, config, keys, open, start, user};

async fn two(context: &TestContext) -> (Chat, TestApp, ServiceContext, Chat, TestApp) {
    let here = open(context).await;
    let other = context.another_node().await;
    let there = start(&other, config()).await;
    wait_for("two nodes", LIMIT, async || here.nodes().await.unwrap().len() == 2).await;
    let (app, app_there) = (
        TestApp::start(context.context(), here.routes()).await,
        TestApp::start(&other, there.routes()).await,
    );
    (here, app, other, there, app_there)
}

/// Whether the index of any node has the user.
async fn is_indexed(context: &ServiceContext, chat: &Chat, who: &str) -> bool {
    for node in chat.nodes().await.unwrap() {
        let incarnation = hob_chat::keys::Incarnation::new(&node.incarnation).unwrap();
        let key = keys(context).node_users(&incarnation);
        let found = cmd("SISMEMBER").arg(key.as_bytes()).arg(who).take();
        if context.store.run::<bool>(found).await.unwrap() {
            return true;
        }
    }
    false
}

every_service! {
    NEEDS;

    /// C1 C16: a socket is removed on the node that it belongs to, and nothing of it is left.
    async fn removed_socket_leaves_nothing_behind(context: TestContext) {
        let (here, _app, other, there, _app_there) = two(&context).await;
        let (anna, socket) = (user("anna"), SocketId::new("s1").unwrap());
        for (adds, removes) in [(&here, &here), (&there, &here), (&here, &there)] {
            adds.add_user_socket(&anna, &socket).await.unwrap();
            assert!(is_indexed(&context, &here, "anna").await);
            let removed = removes.remove_user_socket(&anna, &socket).await.unwrap();
            assert!(matches!(removed, PresenceChange::Changed { .. }), "{removed:?}");
            assert!(!is_indexed(&context, &here, "anna").await, "the index of the node has no socket of the user");
            assert_eq!(removes.remove_user_socket(&anna, &socket).await.unwrap(), PresenceChange::NotFound);
        }
        other.tasks.stop(LIMIT).await;
    }

    /// C16: deleting a socket ends its connection.
    async fn deleted_socket_is_disconnected_on_any_node(context: TestContext) {
        let (here, app, other, there, app_there) = two(&context).await;
        let mut phone = Client::connect(&app, &here, "anna").await;
        let mut laptop = Client::connect(&app_there, &there, "anna").await;
        let mut bert = Client::connect(&app_there, &there, "bert").await;
        let sockets = "/api/v1/chat/users/anna/sockets";
        let open: Value = app.get(sockets).await.json();
        assert_eq!(open["sockets"].as_array().unwrap().len(), 2, "{open}");
        let one = laptop.socket_id.clone();
        let presence: Value = app.delete(&format!("{sockets}?socket_id={one}")).await.json();
        assert_eq!(presence["online"], true, "{presence}");
        assert_eq!(laptop.end().await, 3503);
        assert!(phone.call(json!({ "ping": {} })).await["ping"].is_object(), "the other device stays");

        let mut tablet = Client::connect(&app_there, &there, "anna").await;
        let presence: Value = app.delete(sockets).await.json();
        assert_eq!(presence["online"], false, "{presence}");
        for client in [&mut phone, &mut tablet] {
            assert_eq!(client.end().await, 3503);
        }
        let open: Value = app_there.get(sockets).await.json();
        assert_eq!(open["sockets"], json!([]));
        assert!(!is_indexed(&context, &here, "anna").await);
        assert!(bert.call(json!({ "ping": {} })).await["ping"].is_object(), "other users stay");
        // The user may connect again.
        Client::connect(&app_there, &there, "anna").await;
        other.tasks.stop(LIMIT).await;
    }
}
