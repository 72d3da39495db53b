//! A block hides events; after an unblock, devices get them.

use hob_chat::{BlockAction, Chat};
use hob_fixtures::{TestApp, every_service};
use hob_testkit::LIMIT;
use hob_web::Service as _;
use serde_json::{Value, json};

use crate::client::{Client, message_of};
use crate::harness::{NEEDS, config, done, open, room, say, start, user};

async fn set(chat: &Chat, action: BlockAction) {
    done(chat.block(&user("anna"), &user("bert"), action).await);
}

/// The contents of all messages that a member can read.
async fn history(client: &mut Client) -> Vec<String> {
    let reply = client.call(json!({ "history": { "channel": "conv:r", "limit": 100 } })).await;
    let publications = reply["history"]["publications"].as_array().unwrap_or_else(|| panic!("{reply}"));
    let messages = publications.iter().filter(|publication| publication["data"]["type"] == "message");
    messages.map(|publication| message_of(publication).1).collect()
}

every_service! {
    NEEDS;

    /// C20: a device cannot recover events that were hidden when it was at their offsets, so it reloads.
    async fn unblocked_users_reload_what_they_missed(context: TestContext) {
        let chat = open(&context).await;
        let other = context.another_node().await;
        let there = start(&other, config()).await;
        let (app, app_there) =
            (TestApp::start(context.context(), chat.routes()).await, TestApp::start(&other, there.routes()).await);
        let id = room(&chat, "r", &["anna", "bert", "carl"]).await;
        let old = say(&chat, &id, "bert", "to be deleted").await;
        let mut phone = Client::connect(&app, &chat, "anna").await;
        let mut laptop = Client::connect(&app_there, &there, "anna").await;
        let mut carl = Client::connect(&app, &chat, "carl").await;
        let epoch = phone.subscribe("conv:r").await["subscribe"]["epoch"].clone();
        for client in [&mut laptop, &mut carl] {
            client.subscribe("conv:r").await;
        }
        // A device that is away while the users are unblocked.
        let mut tablet = Client::connect(&app, &chat, "anna").await;
        tablet.subscribe("conv:r").await;
        set(&chat, BlockAction::Block).await;
        say(&chat, &id, "bert", "hidden").await;
        done(chat.delete(&id, &old.id, &user("bert")).await);
        say(&chat, &id, "carl", "visible").await;
        for client in [&mut phone, &mut laptop, &mut tablet] {
            assert_eq!(client.messages(1).await, [(7, "visible".to_owned())]);
        }
        drop(tablet);
        // The block itself does not make old positions invalid.
        let mut desk = Client::connect(&app, &chat, "anna").await;
        assert_eq!(desk.recover("conv:r", 7, &epoch).await["subscribe"]["recovered"], true);

        set(&chat, BlockAction::Unblock).await;
        for client in [&mut phone, &mut laptop] {
            let push = client.push_where(|push| push["unsubscribe"].is_object()).await;
            assert_eq!((&push["channel"], &push["unsubscribe"]["code"]), (&"conv:r".into(), &2500.into()), "{push}");
            let again = client.recover("conv:r", 7, &epoch).await["subscribe"].take();
            assert_eq!((&again["recovered"], &again["was_recovering"]), (&false.into(), &true.into()), "{again}");
            assert_eq!(history(client).await, ["", "hidden", "visible"], "the deleted message is empty");
        }
        let mut tablet = Client::connect(&app_there, &there, "anna").await;
        let stale = tablet.recover("conv:r", 7, &epoch).await["subscribe"].take();
        assert_eq!(stale["recovered"], false, "{stale}");
        // From then on, the device recovers with the new epoch.
        drop(tablet);
        let mut tablet = Client::connect(&app, &chat, "anna").await;
        assert_eq!(tablet.recover("conv:r", 7, &stale["epoch"]).await["subscribe"]["recovered"], true);
        let since = json!({ "channel": "conv:r", "limit": 100, "since": { "offset": 1, "epoch": epoch } });
        assert_eq!(tablet.call(json!({ "history": since })).await["error"]["code"], 112);

        let received = carl.flush().await;
        assert!(received.iter().all(|frame| frame["push"]["unsubscribe"].is_null()), "others stay: {received:?}");
        say(&chat, &id, "bert", "again").await;
        assert_eq!(phone.messages(1).await, [(8, "again".to_owned())]);
        other.tasks.stop(LIMIT).await;
    }

    /// The feed of a user shows who is online, so it is read again after an unblock.
    async fn feed_shows_an_unblocked_user_online(context: TestContext) {
        let chat = open(&context).await;
        let app = TestApp::start(context.context(), chat.routes()).await;
        room(&chat, "r", &["anna", "bert"]).await;
        set(&chat, BlockAction::Block).await;
        let _bert = Client::connect(&app, &chat, "bert").await;
        let mut anna = Client::connect(&app, &chat, "anna").await;
        assert_eq!(anna.subscribe("user:anna").await["subscribe"]["data"]["online"], json!([]));
        set(&chat, BlockAction::Unblock).await;
        anna.push_where(|push| push["unsubscribe"]["code"] == 2500).await;
        let snapshot: Value = anna.subscribe("user:anna").await["subscribe"]["data"].take();
        assert_eq!(snapshot["online"], json!(["bert"]), "{snapshot}");
    }
}
