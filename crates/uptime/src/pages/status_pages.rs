//! Status pages in the console: their settings, subscribers and the code to embed them.

use askama::Template;
use axum::extract::State;
use axum::response::Redirect;
use hob_web::components::{CopyButton, Field};
use hob_web::{AuditDetail, BaseUrl, Console, Form, Page, Path, Problem};
use serde::Deserialize;

use super::MAY_WRITE;
use crate::database::subscribers;
use crate::routes::status_pages::{StatusPageRequest, all, delete, find, save};
use crate::status::StatusPage;
use crate::status::password::MAX_PASSWORD_BYTES;
use crate::uptime::Uptime;

#[derive(Template)]
#[template(path = "uptime/status_pages.html")]
struct Pages {
    here: &'static str,
    pages: Vec<PageRow>,
    fields: Vec<Field>,
    may_write: bool,
}

struct PageRow {
    slug: String,
    path: String,
    title: String,
    shows: String,
    access: &'static str,
    subscribers: u64,
}

#[derive(Template)]
#[template(path = "uptime/status_page.html")]
struct OnePage {
    row: PageRow,
    fields: Vec<Field>,
    /// What to embed, with its code.
    codes: Vec<(&'static str, String)>,
    is_default: bool,
    may_write: bool,
    has_mail: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct PageForm {
    slug: String,
    title: String,
    logo: String,
    accent: String,
    monitors: String,
    password: String,
    no_password: String,
}

pub(super) async fn list(console: Console, State(uptime): State<Uptime>) -> Result<Page, Problem> {
    let mut pages = Vec::new();
    for page in all(&uptime).await? {
        pages.push(PageRow::new(&uptime, &page).await?);
    }
    let slug = Field::text("slug", "Slug").required().max_length(64).placeholder("shop");
    let mut fields = vec![slug.hint("The page is at /status/SLUG")];
    fields.extend(fields_of(None));
    let body = Pages { here: "pages", pages, fields, may_write: console.may(&MAY_WRITE) };
    console.page("Status pages", &body)
}

pub(super) async fn show(
    console: Console,
    State(uptime): State<Uptime>,
    base: BaseUrl,
    Path(slug): Path<String>,
) -> Result<Page, Problem> {
    let page = find(&uptime, &slug).await?;
    let below = |name: &str| base.join(&format!("/status/{}/{name}", page.slug));
    let url = base.join(&page.path());
    let body = OnePage {
        codes: vec![
            ("URL", url.clone()),
            ("Badge", format!("[![Status]({})]({url})", below("badge.svg"))),
            (
                "Widget",
                format!(
                    r#"<iframe src="{}" title="Status" width="360" height="160"></iframe>"#,
                    below("widget")
                ),
            ),
            ("RSS", below("feed.rss")),
            ("Atom", below("feed.atom")),
        ],
        row: PageRow::new(&uptime, &page).await?,
        fields: fields_of(Some(&page)),
        is_default: page.slug.is_default(),
        may_write: console.may(&MAY_WRITE),
        has_mail: uptime.config().smtp.is_some(),
    };
    console.page_below(&[("Status pages", "/uptime/pages")], &page.spec.title, &body)
}

pub(super) async fn add(
    State(uptime): State<Uptime>,
    Form(form): Form<PageForm>,
) -> Result<(AuditDetail, Redirect), Problem> {
    let slug = form.slug.trim().to_owned();
    if find(&uptime, &slug).await.is_ok() {
        return Err(Problem::conflict("Another page has this slug."));
    }
    let page = save(&uptime, &slug, form.request()).await?;
    Ok((AuditDetail::Of(slug), Redirect::to(&format!("/uptime/pages/{}", page.slug))))
}

pub(super) async fn edit(
    State(uptime): State<Uptime>,
    Path(slug): Path<String>,
    Form(form): Form<PageForm>,
) -> Result<Redirect, Problem> {
    find(&uptime, &slug).await?;
    let page = save(&uptime, &slug, form.request()).await?;
    Ok(Redirect::to(&format!("/uptime/pages/{}", page.slug)))
}

pub(super) async fn remove(
    State(uptime): State<Uptime>,
    Path(slug): Path<String>,
) -> Result<Redirect, Problem> {
    delete(&uptime, &slug).await?;
    Ok(Redirect::to("/uptime/pages"))
}

fn fields_of(page: Option<&StatusPage>) -> Vec<Field> {
    let spec = page.map(|page| page.spec.clone()).unwrap_or_default();
    let has_password = page.is_some_and(|page| page.password.is_some());
    let password =
        Field::secret("password", "Password").autocomplete("new-password").max_length(MAX_PASSWORD_BYTES);
    let mut fields = vec![
        Field::text("title", "Title").required().max_length(128).value(spec.title),
        Field::text("monitors", "Monitors").value(spec.monitors.join(", ")).hint(
            "Ids, tags or groups, separated by commas. These monitors are shown even if they are not published. If empty: all published monitors",
        ),
        Field::text("logo", "Logo").value(spec.logo).hint("The URL of an image, or a data: URL of at most 32 KiB"),
        Field::text("accent", "Accent colour").value(spec.accent).max_length(7).placeholder("#0a5cc2"),
        password.hint(if has_password { "Empty: the password stays as it is" } else { "Empty: everyone can read the page" }),
    ];
    if has_password {
        fields.push(Field::checkbox("no_password", "Remove the password"));
    }
    fields
}

impl PageForm {
    fn request(self) -> StatusPageRequest {
        let monitors = self.monitors.split(',').map(|name| name.trim().to_owned());
        StatusPageRequest {
            title: self.title,
            logo: self.logo.trim().to_owned(),
            accent: self.accent.trim().to_owned(),
            monitors: monitors.filter(|name| !name.is_empty()).collect(),
            password: match (self.no_password.as_str(), self.password) {
                ("on", _) => Some(String::new()),
                (_, password) => Some(password).filter(|password| !password.is_empty()),
            },
        }
    }
}

impl PageRow {
    async fn new(uptime: &Uptime, page: &StatusPage) -> Result<Self, Problem> {
        let shows = match page.spec.monitors.as_slice() {
            [] => "published monitors".to_owned(),
            names => names.join(", "),
        };
        Ok(Self {
            slug: page.slug.to_string(),
            path: page.path(),
            title: page.spec.title.clone(),
            shows,
            access: if page.password.is_some() { "password" } else { "public" },
            subscribers: subscribers::count_confirmed(uptime.database(), &page.slug).await?,
        })
    }
}
