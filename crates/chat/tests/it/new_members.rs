//! A member who is added to a conversation: the others see whether they are online, and the new member sees the others.

use hob_chat::Chat;
use hob_fixtures::{TestApp, every_service};
use hob_service::ServiceContext;
use hob_testkit::{LIMIT, wait_for};
use hob_web::Service as _;
use serde_json::Value;

use crate::client::Client;
use crate::harness::{NEEDS, config, done, room, start, user};

/// Waits for the update that a contact is online or offline.
async fn presence_of(client: &mut Client, who: &str, online: bool) -> Value {
    let is_update = |push: &Value| {
        let data = &push["pub"]["data"];
        data["type"] == "presence" && data["userId"] == who && data["online"] == online
    };
    client.push_where(is_update).await
}

async fn node(context: &ServiceContext) -> (Chat, TestApp) {
    let chat = start(context, config()).await;
    let app = TestApp::start(context, chat.routes()).await;
    (chat, app)
}

every_service! {
    NEEDS;

    async fn presence_of_a_new_member_reaches_the_subscribers(context: TestContext) {
        let other = context.another_node().await;
        let [(chat, app), (there, app_there)] = [node(&context).await, node(&other).await];
        let id = room(&chat, "r", &["anna", "bert"]).await;
        let mut anna = Client::connect(&app, &chat, "anna").await;
        let mut bert = Client::connect(&app_there, &there, "bert").await;
        for (client, who) in [(&mut anna, "anna"), (&mut bert, "bert")] {
            client.subscribe("conv:r").await;
            client.subscribe(&format!("user:{who}")).await;
        }
        let mut carl = Client::connect(&app_there, &there, "carl").await;
        carl.subscribe("user:carl").await;

        done(chat.add_member(&id, &user("carl"), None).await);
        for client in [&mut anna, &mut bert] {
            client.push_where(|push| push["join"]["info"]["user"] == "carl").await;
        }
        // The new member sees who is online.
        presence_of(&mut carl, "anna", true).await;
        presence_of(&mut carl, "bert", true).await;
        drop(carl);
        for client in [&mut anna, &mut bert] {
            client.push_where(|push| push["leave"]["info"]["user"] == "carl").await;
        }
        other.tasks.stop(LIMIT).await;
    }

    /// The feed of a user shows contacts of conversations that the user is not subscribed to.
    async fn presence_of_a_new_member_reaches_the_feeds(context: TestContext) {
        let other = context.another_node().await;
        let [(chat, app), (there, app_there)] = [node(&context).await, node(&other).await];
        let id = room(&chat, "r", &["anna", "bert"]).await;
        let mut anna = Client::connect(&app, &chat, "anna").await;
        let mut bert = Client::connect(&app_there, &there, "bert").await;
        for (client, who) in [(&mut anna, "anna"), (&mut bert, "bert")] {
            client.subscribe(&format!("user:{who}")).await;
        }
        let carl = Client::connect(&app_there, &there, "carl").await;
        done(there.add_member(&id, &user("carl"), None).await);
        for client in [&mut anna, &mut bert] {
            presence_of(client, "carl", true).await;
        }
        drop(carl);
        for client in [&mut anna, &mut bert] {
            presence_of(client, "carl", false).await;
        }
        // A new conversation makes new contacts too.
        let mut dora = Client::connect(&app, &chat, "dora").await;
        dora.subscribe("user:dora").await;
        room(&there, "s", &["bert", "dora"]).await;
        presence_of(&mut dora, "bert", true).await;
        presence_of(&mut bert, "dora", true).await;
        other.tasks.stop(LIMIT).await;
    }

    /// Users who share no conversation any more do not see each other's presence, from the acknowledged removal on.
    async fn presence_of_former_contacts_is_not_reported(context: TestContext) {
        let other = context.another_node().await;
        let [(chat, app), (there, app_there)] = [node(&context).await, node(&other).await];
        let id = room(&chat, "r", &["anna", "bert", "dora"]).await;
        room(&chat, "s", &["bert", "emil"]).await;
        let mut anna = Client::connect(&app_there, &there, "anna").await;
        let mut bert = Client::connect(&app, &chat, "bert").await;
        for (client, who) in [(&mut anna, "anna"), (&mut bert, "bert")] {
            client.subscribe(&format!("user:{who}")).await;
        }
        done(chat.remove_member(&id, &user("bert"), None).await);
        let phone = Client::connect(&app, &chat, "dora").await;
        let _laptop = Client::connect(&app, &chat, "emil").await;
        let next_presence = async |client: &mut Client| {
            let push = client.push_where(|push| push["pub"]["data"]["type"] == "presence").await;
            push["pub"]["data"]["userId"].clone()
        };
        // Bert may still get the event of anna, which is from before the removal.
        let mut seen = next_presence(&mut bert).await;
        if seen == "anna" {
            seen = next_presence(&mut bert).await;
        }
        assert_eq!(seen, "emil", "dora came before emil");
        drop(bert);
        wait_for("bert to be offline", LIMIT, async || !chat.is_user_online(&user("bert")).await.unwrap()).await;
        drop(phone);
        loop {
            let push = anna.push_where(|push| push["pub"]["data"]["type"] == "presence").await["pub"]["data"].take();
            assert!(push["userId"] != "bert" || push["online"] == true, "{push}");
            if push["userId"] == "dora" && push["online"] == false {
                break;
            }
        }
        other.tasks.stop(LIMIT).await;
    }
}
