//! The API of status pages.

use axum::extract::State;
use axum::http::StatusCode;
use hob_web::{AuditDetail, Json, List, Path, Problem, Time};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::invalid;
use crate::database::{status_pages, subscribers};
use crate::monitor::check::FieldError;
use crate::status::page::{self, MAX_PAGES, PasswordChange, SaveOutcome};
use crate::status::password::{MAX_PASSWORD_BYTES, MIN_PASSWORD_BYTES, PasswordHash};
use crate::status::{Slug, StatusPage, StatusPageSpec};
use crate::uptime::Uptime;

/// A status page. The page `default` has its settings in `hob.toml`.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = StatusPage)]
pub(crate) struct StatusPageView {
    slug: String,
    /// The path of the page: `/status/shop`.
    path: String,
    title: String,
    logo: String,
    accent: String,
    monitors: Vec<String>,
    has_password: bool,
    /// Readers who receive e-mail.
    subscribers: u64,
    created_at: Time,
    changed_at: Time,
}

/// A status page to save.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StatusPageRequest {
    #[schema(min_length = 1, max_length = 128, example = "Shop status")]
    pub(crate) title: String,
    /// The URL of an image, or the image itself as a `data:` URL of at most 32 KiB.
    #[serde(default)]
    #[schema(max_length = 32768)]
    pub(crate) logo: String,
    /// The colour of links and buttons.
    #[serde(default)]
    #[schema(max_length = 7, example = "#0a5cc2")]
    pub(crate) accent: String,
    /// Ids, tags and groups of the monitors to show, published or not. If empty: all published monitors.
    #[serde(default)]
    #[schema(max_items = 64, value_type = Vec<hob_web::Text128>)]
    pub(crate) monitors: Vec<String>,
    /// Readers must enter it. Omitted: stays as it is. Empty: no password.
    #[schema(max_length = 128, format = Password)]
    pub(crate) password: Option<String>,
}

/// List all status pages, the default page first.
#[utoipa::path(get, path = "/api/v1/uptime/pages", operation_id = "list_pages", responses((status = 200, body = List<StatusPageView>)))]
pub(super) async fn list(State(uptime): State<Uptime>) -> Result<Json<List<StatusPageView>>, Problem> {
    let mut items = Vec::new();
    for page in all(&uptime).await? {
        items.push(view(&uptime, page).await?);
    }
    Ok(Json(List { items, next: None }))
}

/// Get a status page.
#[utoipa::path(get, path = "/api/v1/uptime/pages/{slug}", operation_id = "show_page", params(("slug" = String, Path, max_length = 64)),
    responses((status = 200, body = StatusPageView)))]
pub(super) async fn show(
    State(uptime): State<Uptime>,
    Path(slug): Path<String>,
) -> Result<Json<StatusPageView>, Problem> {
    let page = find(&uptime, &slug).await?;
    view(&uptime, page).await.map(Json)
}

/// Add a status page, or change one. The page `default` is changed in `hob.toml`.
#[utoipa::path(put, path = "/api/v1/uptime/pages/{slug}", operation_id = "put_page", params(("slug" = String, Path, max_length = 64)),
    request_body = StatusPageRequest, responses((status = 200, body = StatusPageView)))]
pub(super) async fn put(
    State(uptime): State<Uptime>,
    Path(slug): Path<String>,
    Json(request): Json<StatusPageRequest>,
) -> Result<(AuditDetail, Json<StatusPageView>), Problem> {
    let page = save(&uptime, &slug, request).await?;
    let detail = AuditDetail::Of(page.slug.to_string());
    Ok((detail, Json(view(&uptime, page).await?)))
}

/// Remove a status page with its subscribers.
#[utoipa::path(delete, path = "/api/v1/uptime/pages/{slug}", operation_id = "remove_page", params(("slug" = String, Path, max_length = 64)),
    responses((status = 204)))]
pub(super) async fn remove(
    State(uptime): State<Uptime>,
    Path(slug): Path<String>,
) -> Result<StatusCode, Problem> {
    delete(&uptime, &slug).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// All pages, the default page first.
pub(crate) async fn all(uptime: &Uptime) -> Result<Vec<StatusPage>, Problem> {
    let mut pages = vec![StatusPage::default_page(&uptime.config())];
    pages.extend(status_pages::all(uptime.database()).await?);
    Ok(pages)
}

pub(crate) async fn find(uptime: &Uptime, slug: &str) -> Result<StatusPage, Problem> {
    let unknown = || Problem::not_found("status page");
    let slug = Slug::new(slug).ok_or_else(unknown)?;
    if slug.is_default() {
        return Ok(StatusPage::default_page(&uptime.config()));
    }
    status_pages::by_slug(uptime.database(), &slug).await?.ok_or_else(unknown)
}

/// Saves a page for a request of the API or a page of the console.
pub(crate) async fn save(
    uptime: &Uptime,
    slug: &str,
    request: StatusPageRequest,
) -> Result<StatusPage, Problem> {
    let StatusPageRequest { title, logo, accent, monitors, password } = request;
    let spec = StatusPageSpec { title: title.trim().to_owned(), logo, accent, monitors };
    let mut errors = spec.validate().err().unwrap_or_default();
    let slug = Slug::new(slug).filter(|slug| !slug.is_default());
    if slug.is_none() {
        let message = "must have 1 to 64 lower-case letters, digits and hyphens, and not be `default`";
        errors.push(FieldError::new("slug", message));
    }
    let fits = MIN_PASSWORD_BYTES..=MAX_PASSWORD_BYTES;
    if password.as_ref().is_some_and(|text| !text.is_empty() && !fits.contains(&text.len())) {
        let message = format!("must have {MIN_PASSWORD_BYTES} to {MAX_PASSWORD_BYTES} bytes");
        errors.push(FieldError::new("password", message));
    }
    let Some(slug) = slug.filter(|_| errors.is_empty()) else { return Err(invalid(errors)) };
    let password = match password {
        None => PasswordChange::Keep,
        Some(text) if text.is_empty() => PasswordChange::Remove,
        Some(text) => PasswordChange::Set(PasswordHash::of(&text).await),
    };
    match page::save(uptime.database(), &slug, &spec, &password).await? {
        SaveOutcome::Saved(page) => {
            uptime.inner.status.invalidate();
            Ok(*page)
        }
        SaveOutcome::LimitReached => {
            Err(Problem::conflict(format!("The limit of {MAX_PAGES} status pages has been reached.")))
        }
    }
}

pub(crate) async fn delete(uptime: &Uptime, slug: &str) -> Result<(), Problem> {
    let slug = Slug::new(slug).ok_or_else(|| Problem::not_found("status page"))?;
    if !page::remove(uptime.database(), &slug).await? {
        return Err(Problem::not_found("status page"));
    }
    uptime.inner.status.invalidate();
    Ok(())
}

async fn view(uptime: &Uptime, page: StatusPage) -> Result<StatusPageView, Problem> {
    let subscribers = subscribers::count_confirmed(uptime.database(), &page.slug).await?;
    Ok(StatusPageView {
        path: page.path(),
        slug: page.slug.to_string(),
        title: page.spec.title,
        logo: page.spec.logo,
        accent: page.spec.accent,
        monitors: page.spec.monitors,
        has_password: page.password.is_some(),
        subscribers,
        created_at: Time(page.created_at),
        changed_at: Time(page.changed_at),
    })
}
