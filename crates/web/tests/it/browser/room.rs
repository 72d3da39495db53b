//! A sample service that uses all features of pages: live updates, forms, a search, the gallery.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use askama::Template;
use axum::extract::State;
use axum::response::Redirect;
use hob_fixtures::{Layout, Needs, TestApp, TestContext};
use hob_service::Live;
use hob_web::components::{Field, Markup, RelativeTime};
use hob_web::{Access, Audited, Config, Console, Page, Problem, Query, Routes, Web};
use serde::Deserialize;

use super::gallery::gallery;

#[derive(Clone)]
pub(super) struct Room {
    web: Web,
    visits: Arc<AtomicU64>,
}

#[derive(Template)]
#[template(
    source = r##"<p id="visits" data-live="room">{{ visits }} visits, the last {{ RelativeTime::at(at_ms) }}</p>
<details id="more" data-live="room"><summary>More</summary><p id="inside">{{ visits }} inside</p></details>
<form class="form" id="visit" data-live="room" action="/room" method="post">{{ note }}<button class="primary">Visit {{ visits }}</button></form>
<form class="form" action="/room" method="get" data-filter="guests">{{ search }}<button>Search</button></form>
<ul id="guests">{% for guest in guests %}<li>{{ guest }}</li>{% endfor %}</ul>"##,
    ext = "html"
)]
struct RoomPage {
    visits: u64,
    at_ms: u64,
    note: Field,
    search: Field,
    guests: Vec<&'static str>,
}

#[derive(Template)]
#[template(source = "{{ gallery }}", ext = "html")]
struct GalleryPage {
    gallery: Markup,
}

#[derive(Deserialize)]
struct Search {
    #[serde(default)]
    q: String,
}

async fn room_page(
    console: Console,
    State(room): State<Room>,
    Query(search): Query<Search>,
) -> Result<Page, Problem> {
    let page = RoomPage {
        visits: room.visits.load(Ordering::SeqCst),
        at_ms: hob_units::unix_ms(),
        note: Field::text("note", "Note"),
        guests: ["Ada", "Alan", "Grace"].into_iter().filter(|guest| guest.contains(&search.q)).collect(),
        search: Field::search("q", "Guest").value(search.q),
    };
    console.page("Room", &page)
}

async fn visit(State(room): State<Room>) -> Redirect {
    room.visit();
    Redirect::to("/room")
}

async fn gallery_page(console: Console) -> Result<Page, Problem> {
    console.page("Gallery", &GalleryPage { gallery: gallery() })
}

impl Room {
    pub(super) fn visit(&self) {
        self.visits.fetch_add(1, Ordering::SeqCst);
        self.web.changes().notify("room");
    }

    fn routes(self) -> Routes {
        Routes::new()
            .nav("Room", "/room", "")
            .nav("Gallery", "/gallery", "")
            .page(Access::read("room"), "/room", room_page)
            .action(Access::write("room"), Audited::No, "/room", visit)
            .page(Access::read("room"), "/gallery", gallery_page)
            .with_state(self)
    }
}

/// Starts an app with a room, and returns both.
pub(super) async fn serve(config: Config) -> (TestContext, TestApp, Room) {
    let context = TestContext::embedded(Needs::default(), Layout::Plain).await;
    let mut room = None;
    let app = TestApp::start_with_config(&context, Live::fixed(config), |web| {
        let new = Room { web: web.clone(), visits: Arc::default() };
        room = Some(new.clone());
        new.routes()
    })
    .await;
    (context, app, room.unwrap())
}
