//! A sample service with routes, pages and problems.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Redirect;
use hob_web::{Access, Audited, Console, Form, Json, Page, Path, Problem, Query, Routes, Scope};
use serde::{Deserialize, Serialize};
use tokio::sync::{Mutex, Semaphore};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

#[derive(Clone)]
pub(crate) struct Garden {
    gnomes: Arc<Mutex<Vec<Gnome>>>,
    permits: Arc<Semaphore>,
    waiting: Arc<AtomicUsize>,
}

#[derive(Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct Gnome {
    #[schema(min_length = 1, max_length = 40)]
    pub(crate) name: String,
    #[schema(maximum = 500)]
    pub(crate) height_cm: u16,
}

#[derive(Deserialize, IntoParams)]
struct Filter {
    /// The minimum height, in centimetres.
    min_height_cm: Option<u16>,
}

/// Lists gnomes.
#[utoipa::path(get, path = "/api/v1/garden/gnomes", params(Filter), responses((status = 200, body = [Gnome])))]
async fn list(State(garden): State<Garden>, Query(filter): Query<Filter>) -> Json<Vec<Gnome>> {
    let gnomes = garden.gnomes.lock().await;
    let tall = |gnome: &&Gnome| gnome.height_cm >= filter.min_height_cm.unwrap_or(0);
    Json(gnomes.iter().filter(tall).cloned().collect())
}

/// Adds a gnome.
#[utoipa::path(post, path = "/api/v1/garden/gnomes", request_body = Gnome, responses((status = 201, body = Gnome)))]
async fn add(
    State(garden): State<Garden>,
    Json(gnome): Json<Gnome>,
) -> Result<(StatusCode, Json<Gnome>), Problem> {
    if gnome.name.is_empty() || gnome.name.chars().count() > 40 {
        return Err(Problem::invalid("name", "a gnome's name has 1 to 40 characters"));
    }
    if gnome.height_cm > 500 {
        return Err(Problem::invalid("height_cm", "a gnome is at most 500 cm tall"));
    }
    let mut gnomes = garden.gnomes.lock().await;
    if gnomes.iter().any(|other| other.name == gnome.name) {
        return Err(Problem::conflict("There is a gnome of that name."));
    }
    gnomes.push(gnome.clone());
    Ok((StatusCode::CREATED, Json(gnome)))
}

/// Returns a gnome.
#[utoipa::path(get, path = "/api/v1/garden/gnomes/{name}", params(("name" = String, Path)),
    responses((status = 200, body = Gnome)))]
async fn gnome(State(garden): State<Garden>, Path(name): Path<String>) -> Result<Json<Gnome>, Problem> {
    let gnomes = garden.gnomes.lock().await;
    gnomes
        .iter()
        .find(|gnome| gnome.name == name)
        .cloned()
        .map(Json)
        .ok_or_else(|| Problem::not_found("gnome"))
}

/// Panics.
#[utoipa::path(get, path = "/api/v1/garden/trip", responses((status = 200)))]
async fn trip() {
    panic!("tripped over a rake");
}

/// More than the socket buffers of both sides hold.
pub(crate) const LARGE_BYTES: usize = 64 << 20;

/// A large response.
async fn hay() -> Vec<u8> {
    vec![b'.'; LARGE_BYTES]
}

/// A response that waits for `release_one`.
async fn nap(State(garden): State<Garden>) -> Result<&'static str, Problem> {
    garden.waiting.fetch_add(1, Ordering::SeqCst);
    garden.permits.acquire().await.map_err(Problem::internal)?.forget();
    Ok("awake")
}

impl Garden {
    /// The number of waiting requests.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }

    /// Lets one waiting request continue.
    pub(crate) fn release_one(&self) {
        self.permits.add_permits(1);
    }
}

impl Default for Garden {
    fn default() -> Self {
        Self { gnomes: Arc::default(), permits: Arc::new(Semaphore::new(0)), waiting: Arc::default() }
    }
}

#[derive(Template)]
#[template(
    source = "<ul>{% for gnome in gnomes %}<li>{{ gnome.name }}</li>{% endfor %}</ul>{% if may_add %}<form></form>{% endif %}",
    ext = "html"
)]
struct Lawn {
    gnomes: Vec<Gnome>,
    may_add: bool,
}

async fn lawn(console: Console, State(garden): State<Garden>) -> Result<Page, Problem> {
    let gnomes = garden.gnomes.lock().await.clone();
    console.page("Garden", &Lawn { gnomes, may_add: console.may(&Scope::write("garden")) })
}

async fn broken_page() -> Result<Page, Problem> {
    Err(Problem::invalid("gnome", "<b>not here</b>"))
}

async fn plant(State(garden): State<Garden>, Form(gnome): Form<Gnome>) -> Redirect {
    garden.gnomes.lock().await.push(gnome);
    Redirect::to("/garden")
}

pub(crate) fn routes(garden: Garden) -> Routes {
    Routes::new()
        .nav("Garden", "/garden", "")
        .api(Access::read("garden"), routes!(list))
        .write(Access::write("garden"), Audited::As("garden.gnome.add"), routes!(add))
        .api(Access::read("garden"), routes!(gnome))
        .api(Access::Public, routes!(trip))
        .page(Access::read("garden"), "/garden", lawn)
        .page(Access::Public, "/garden/broken", broken_page)
        .page(Access::Public, "/garden/hay", hay)
        .page(Access::Public, "/garden/nap", nap)
        .action(Access::write("garden"), Audited::As("garden.gnome.plant"), "/garden", plant)
        .with_state(garden)
}
