//! Members who leave and are added again: what was said in between is hidden from them, unless configured otherwise.

use hob_chat::{Chat, Config, MessageRange};
use hob_fixtures::{TestApp, TestContext, every_service};
use hob_web::Service as _;
use serde_json::{Value, json};

use crate::client::{Client, message_of};
use crate::harness::{NEEDS, config, done, room, say, start, user};

/// A conversation that `anna` left twice, and a client of hers.
async fn returned(context: &TestContext, config: Config) -> (Chat, TestApp, Client) {
    let chat = start(context.context(), config).await;
    let app = TestApp::start(context.context(), chat.routes()).await;
    let id = room(&chat, "r", &["bert", "anna"]).await;
    say(&chat, &id, "bert", "first").await;
    for absence in ["out", "out again"] {
        done(chat.remove_member(&id, &user("anna"), None).await);
        say(&chat, &id, "bert", absence).await;
        done(chat.add_member(&id, &user("anna"), None).await);
        say(&chat, &id, "bert", &format!("back after {absence}")).await;
    }
    let client = Client::connect(&app, &chat, "anna").await;
    (chat, app, client)
}

async fn over_http(app: &TestApp, query: &str) -> Vec<String> {
    let path = format!("/api/v1/chat/conversations/r/messages?user_id=anna&{query}");
    let list: Value = app.get(&path).await.json();
    let messages = list["messages"].as_array().unwrap_or_else(|| panic!("{list}"));
    messages.iter().map(|message| message["content"].as_str().unwrap().to_owned()).collect()
}

fn contents(publications: &Value) -> Vec<String> {
    let publications = publications.as_array().into_iter().flatten();
    let messages = publications.filter(|publication| publication["data"]["type"] == "message");
    messages.map(|publication| message_of(publication).1).collect()
}

const SEEN: [&str; 3] = ["first", "back after out", "back after out again"];
const ALL: [&str; 5] = ["first", "out", "back after out", "out again", "back after out again"];

every_service! {
    NEEDS;

    async fn returning_member_does_not_read_what_was_said_in_between(context: TestContext) {
        let (chat, app, mut anna) = returned(&context, config()).await;
        for query in ["limit=50", "after=0&limit=50", "before=100&limit=50"] {
            assert_eq!(over_http(&app, query).await, SEEN, "{query}");
        }
        assert_eq!(over_http(&app, "after=0&limit=2").await, SEEN[..2], "a page is full");
        assert_eq!(over_http(&app, "limit=2").await, SEEN[1..]);
        let forwards = anna.call(json!({ "history": { "channel": "conv:r", "limit": 100 } })).await;
        assert_eq!(contents(&forwards["history"]["publications"]), SEEN);
        let backwards = json!({ "history": { "channel": "conv:r", "limit": 100, "reverse": true } });
        let backwards = anna.call(backwards).await;
        assert_eq!(contents(&backwards["history"]["publications"]), SEEN.into_iter().rev().collect::<Vec<_>>());
        // A position before the return cannot be recovered: the client reads the history instead.
        for offset in [0, 3, 5] {
            let reply = anna.recover("conv:r", offset, &json!("")).await["subscribe"].take();
            assert_eq!((&reply["recovered"], contents(&reply["publications"])), (&false.into(), Vec::new()), "{reply}");
            anna.call(json!({ "unsubscribe": { "channel": "conv:r" } })).await;
        }
        let joined = chat.conversation(&crate::harness::conversation("r")).await.unwrap().unwrap().sequence - 1;
        let reply = anna.recover("conv:r", joined, &json!("")).await["subscribe"].take();
        assert_eq!((&reply["recovered"], contents(&reply["publications"])), (&true.into(), vec![SEEN[2].to_owned()]));
        assert_eq!(chat.unread(&user("anna")).await.unwrap().1, 1, "only what was said since the return");
        // Others, and the server, read everything.
        let id = crate::harness::conversation("r");
        for viewer in [Some(user("bert")), None] {
            let messages = done(chat.messages(&id, viewer.as_ref(), MessageRange::Newest, 50).await);
            assert_eq!(messages.iter().map(|message| message.content.as_str()).collect::<Vec<_>>(), ALL);
        }
    }
}

/// With `messages_during_absence = "visible"`, a member who is back reads and recovers everything.
#[tokio::test]
async fn absence_can_be_visible() {
    let context = TestContext::embedded(NEEDS, hob_fixtures::Layout::Plain).await;
    let visible = Config { messages_during_absence: hob_chat::AbsenceMessages::Visible, ..config() };
    let (chat, app, mut anna) = returned(&context, visible).await;
    assert_eq!(over_http(&app, "after=0&limit=50").await, ALL);
    let history = anna.call(json!({ "history": { "channel": "conv:r", "limit": 100 } })).await;
    assert_eq!(contents(&history["history"]["publications"]), ALL);
    let reply = anna.recover("conv:r", 3, &json!("")).await["subscribe"].take();
    assert_eq!(
        (&reply["recovered"], contents(&reply["publications"])),
        (&true.into(), ALL[1..].iter().map(ToString::to_string).collect())
    );
    assert_eq!(chat.unread(&user("anna")).await.unwrap().1, 1, "everything before the return counts as read");
}
