//! The HTTP API: its paths, and its errors.

use hob_chat::Chat;
use hob_fixtures::{TestApp, TestContext, every_service};
use hob_testkit::{LIMIT, wait_for};
use hob_web::Service as _;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use crate::harness::{NEEDS, done, open, room, say, user};

async fn app(context: &TestContext) -> (Chat, TestApp) {
    let chat = open(context).await;
    let app = TestApp::start(context.context(), chat.routes()).await;
    (chat, app)
}

every_service! {
    NEEDS;

    /// C16, and everything else that services need.
    async fn services_can_do_everything_over_http(context: TestContext) {
        let (_chat, app) = app(&context).await;
        let new = json!({ "id": "conv123", "title": "Team", "created_by": "anna", "members": ["bert"] });
        let opened = app.post("/api/v1/chat/conversations", &new).await;
        assert_eq!(opened.status, 201, "{}", opened.text());
        assert_eq!(app.post("/api/v1/chat/conversations", &new).await.status, 409);
        let members = "/api/v1/chat/conversations/conv123/members";
        assert_eq!(app.post(members, &json!({ "user_id": "carl" })).await.status, 204);
        let messages = "/api/v1/chat/conversations/conv123/messages";
        let body = json!({ "sender_id": "anna", "content": "hello", "client_id": "1" });
        let created = app.post(messages, &body).await;
        assert_eq!(created.status, 201);
        let sent: Value = created.json();
        let shown = ["sender_id", "client_id", "conversation_id"].map(|field| &sent[field]);
        assert_eq!(shown, ["anna", "1", "conv123"]);
        let repeated = app.post(messages, &body).await;
        assert_eq!(repeated.status, 200, "the message exists already");
        assert_eq!(sent, repeated.json::<Value>());
        let list: Value = app.get(&format!("{messages}?after=0&limit=10&user_id=bert")).await.json();
        assert_eq!(list["messages"].as_array().unwrap().len(), 1);
        let unread: Value = app.get("/api/v1/chat/users/bert/unread").await.json();
        assert_eq!(unread["total"], 1);
        assert_eq!(unread["conversations"][0]["conversation_id"], "conv123");
        let read = json!({ "user_id": "bert", "sequence": sent["sequence"] });
        let receipt: Value = app.post("/api/v1/chat/conversations/conv123/read", &read).await.json();
        assert_eq!(receipt["read_sequence"], sent["sequence"]);
        let mine: Value = app.get("/api/v1/chat/conversations?user_id=bert").await.json();
        assert_eq!((&mine["conversations"][0]["id"], &mine["conversations"][0]["unread"]), (&"conv123".into(), &0.into()));
        let sockets = "/api/v1/chat/users/bert/sockets";
        let online: Value = app.post(sockets, &json!({ "socket_id": "s1" })).await.json();
        assert_eq!(online["online"], true);
        let many: Value = app.post("/api/v1/chat/users/presence", &json!({ "users": ["anna", "bert"] })).await.json();
        assert_eq!((&many["users"][0]["online"], &many["users"][1]["online"]), (&false.into(), &true.into()));
        let offline: Value = app.delete(&format!("{sockets}?socket_id=s1")).await.json();
        assert_eq!(offline["online"], false);
        let limit: Value = app.post("/api/v1/chat/users/bert/limit", &json!({})).await.json();
        assert_eq!(limit["allowed"], true);
        let id = sent["id"].as_str().unwrap();
        assert_eq!(app.delete(&format!("{messages}/{id}?user_id=bert")).await.status, 403);
        assert_eq!(app.delete(&format!("{messages}/{id}?user_id=anna")).await.status, 204);
        assert_eq!(app.delete(&format!("{members}?user_id=carl")).await.status, 204);
        assert_eq!(app.post(messages, &json!({ "sender_id": "carl", "content": "x" })).await.status, 403);
        assert_eq!(app.post("/api/v1/chat/users/anna/blocks", &json!({ "user_id": "bert" })).await.status, 204);
        assert_eq!(app.post(messages, &json!({ "sender_id": "bert", "content": "x" })).await.status, 403);
    }

    /// C10: the stream of events, at least once, from any event on.
    async fn event_stream_resumes_after_the_last_event(context: TestContext) {
        let (chat, app) = app(&context).await;
        let id = room(&chat, "r", &["anna", "bert"]).await;
        for n in 0..3 {
            say(&chat, &id, "anna", &n.to_string()).await;
        }
        let mut first = read_events(&app, "/api/v1/chat/events?after=0", 3).await;
        assert_eq!(first.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [1, 2, 3]);
        let (_, event) = first.pop().unwrap();
        assert_eq!((&event["senderId"], &event["participantIds"]), (&"anna".into(), &json!(["anna", "bert"])));
        let rest = read_events(&app, "/api/v1/chat/events?after=1", 2).await;
        assert_eq!(rest.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [2, 3]);
    }

    /// C10: an event is the same whenever it is read, whatever happened to the members since.
    async fn replayed_event_shows_the_participants_of_its_time(context: TestContext) {
        let (chat, app) = app(&context).await;
        let id = room(&chat, "r", &["anna", "bert"]).await;
        say(&chat, &id, "anna", "1").await;
        done(chat.add_member(&id, &user("carl"), None).await);
        say(&chat, &id, "anna", "2").await;
        done(chat.remove_member(&id, &user("bert"), None).await);
        say(&chat, &id, "anna", "3").await;
        done(chat.add_member(&id, &user("bert"), None).await);
        done(chat.remove_member(&id, &user("carl"), None).await);
        let events = read_events(&app, "/api/v1/chat/events?after=0", 3).await;
        let participants: Vec<_> = events.iter().map(|(_, event)| event["participantIds"].clone()).collect();
        assert_eq!(participants, [json!(["anna", "bert"]), json!(["anna", "bert", "carl"]), json!(["anna", "carl"])]);
    }
}

/// The next events of a stream, with their ids.
async fn read_events(app: &TestApp, path: &str, count: usize) -> Vec<(u64, Value)> {
    let mut body = app.open(path).await.into_body();
    let mut text = String::new();
    wait_for("the events", LIMIT, async || {
        if text.matches("\n\n").count() < count {
            let frame = body.frame().await.expect("an open stream").expect("a frame");
            text.push_str(std::str::from_utf8(frame.data_ref().expect("data")).unwrap());
        }
        text.matches("\n\n").count() >= count
    })
    .await;
    let events = text.split("\n\n").filter(|event| event.contains("data:")).map(|event| {
        let line =
            |name: &str| event.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
        (line("id:").parse().unwrap(), serde_json::from_str(&line("data:")).unwrap())
    });
    events.collect()
}

#[tokio::test]
async fn invalid_input_is_reported_by_field() {
    let context = TestContext::embedded(NEEDS, hob_fixtures::Layout::Plain).await;
    let (chat, app) = app(&context).await;
    room(&chat, "r", &["anna"]).await;
    let base = "/api/v1/chat/conversations";
    for (path, body, status, field) in [
        (base.to_owned(), json!({ "id": "total", "title": "x", "created_by": "anna" }), 422, "id"),
        (base.to_owned(), json!({ "title": "", "created_by": "anna" }), 422, "title"),
        (base.to_owned(), json!({ "title": "x", "created_by": "" }), 422, "created_by"),
        (format!("{base}/r/messages"), json!({ "sender_id": "anna", "content": "" }), 422, "content"),
        (
            format!("{base}/r/messages"),
            json!({ "sender_id": "anna", "content": "x", "client_id": "" }),
            422,
            "client_id",
        ),
        (format!("{base}/r/read"), json!({ "user_id": "anna", "sequence": u64::MAX }), 422, "sequence"),
        ("/api/v1/chat/users/anna/sockets".to_owned(), json!({ "socket_id": "version" }), 422, "socket_id"),
        ("/api/v1/chat/users/anna/blocks".to_owned(), json!({ "user_id": "anna" }), 422, "user_id"),
    ] {
        let answer = app.post(&path, &body).await;
        assert_eq!(answer.status, status, "{path} {body}: {}", answer.text());
        assert_eq!(answer.json::<Value>()["errors"][0]["field"], field, "{path} {body}");
    }
    assert_eq!(app.get("/api/v1/chat/conversations/none").await.status, 404);
    assert_eq!(app.get("/api/v1/chat/conversations/r/messages?after=1&before=2").await.status, 422);
    assert_eq!(app.get("/api/v1/chat/conversations?after=rubbish").await.status, 422);
}
