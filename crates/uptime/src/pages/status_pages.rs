//! Status pages in the console: their settings, subscribers and the code to embed them.

use askama::Template;
use axum::extract::State;
use axum::response::{IntoResponse as _, Redirect, Response};
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
    /// The form has entered data that is not saved.
    is_draft: bool,
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
    is_draft: bool,
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
    list_with(&console, &uptime, &PageForm::default(), None).await
}

/// The list, with a form for another page and the errors of the form.
async fn list_with(
    console: &Console,
    uptime: &Uptime,
    form: &PageForm,
    problem: Option<&Problem>,
) -> Result<Page, Problem> {
    let mut pages = Vec::new();
    for page in all(uptime).await? {
        pages.push(PageRow::new(uptime, &page).await?);
    }
    let slug = Field::text("slug", "Slug").value(&form.slug).required().max_length(64).placeholder("shop");
    let slug = slug.hint("The page is at /status/SLUG").error(problem.and_then(|one| one.error_of("slug")));
    let mut fields = vec![slug];
    fields.extend(form.fields(false, problem));
    let (is_draft, may_write) = (problem.is_some(), console.may(&MAY_WRITE));
    console.page("Status pages", &Pages { here: "pages", pages, fields, is_draft, may_write })
}

pub(super) async fn show(
    console: Console,
    State(uptime): State<Uptime>,
    base: BaseUrl,
    Path(slug): Path<String>,
) -> Result<Page, Problem> {
    let page = find(&uptime, &slug).await?;
    show_with(&console, &uptime, &base, (&page, &PageForm::of(&page)), None).await
}

/// A page with the form of its settings, and the errors of the form.
async fn show_with(
    console: &Console,
    uptime: &Uptime,
    base: &BaseUrl,
    (page, form): (&StatusPage, &PageForm),
    problem: Option<&Problem>,
) -> Result<Page, Problem> {
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
        row: PageRow::new(uptime, page).await?,
        fields: form.fields(page.password.is_some(), problem),
        is_draft: problem.is_some(),
        is_default: page.slug.is_default(),
        may_write: console.may(&MAY_WRITE),
        has_mail: uptime.config().smtp.is_some(),
    };
    console.page_below(&[("Status pages", "/uptime/pages")], &page.spec.title, &body)
}

pub(super) async fn add(
    console: Console,
    State(uptime): State<Uptime>,
    Form(form): Form<PageForm>,
) -> Result<Response, Problem> {
    let slug = form.slug.trim().to_owned();
    let saved = match find(&uptime, &slug).await {
        Ok(_) => Err(Problem::invalid("slug", "another page has this slug")),
        Err(_) => save(&uptime, &slug, form.request()).await,
    };
    match saved {
        Ok(page) => {
            let to = Redirect::to(&format!("/uptime/pages/{}", page.slug));
            Ok((AuditDetail::Of(slug), to).into_response())
        }
        Err(problem) if problem.errors().is_empty() => Err(problem),
        Err(problem) => {
            let page = list_with(&console, &uptime, &form, Some(&problem)).await?;
            Ok((problem.status(), page).into_response())
        }
    }
}

pub(super) async fn edit(
    console: Console,
    State(uptime): State<Uptime>,
    base: BaseUrl,
    Path(slug): Path<String>,
    Form(form): Form<PageForm>,
) -> Result<Response, Problem> {
    let page = find(&uptime, &slug).await?;
    match save(&uptime, &slug, form.request()).await {
        Ok(page) => Ok(Redirect::to(&format!("/uptime/pages/{}", page.slug)).into_response()),
        Err(problem) if problem.errors().is_empty() => Err(problem),
        Err(problem) => {
            let shown = show_with(&console, &uptime, &base, (&page, &form), Some(&problem)).await?;
            Ok((problem.status(), shown).into_response())
        }
    }
}

pub(super) async fn remove(
    State(uptime): State<Uptime>,
    Path(slug): Path<String>,
) -> Result<Redirect, Problem> {
    delete(&uptime, &slug).await?;
    Ok(Redirect::to("/uptime/pages"))
}

impl PageForm {
    fn of(page: &StatusPage) -> Self {
        let spec = page.spec.clone();
        Self {
            title: spec.title,
            logo: spec.logo,
            accent: spec.accent,
            monitors: spec.monitors.join(", "),
            ..Self::default()
        }
    }

    /// All fields but the slug.
    fn fields(&self, has_password: bool, problem: Option<&Problem>) -> Vec<Field> {
        let error = |field: &str| problem.and_then(|problem| problem.error_of(field));
        let text =
            |name: &str, label: &str, value: &str| Field::text(name, label).value(value).error(error(name));
        let password = Field::secret("password", "Password").error(error("password"));
        let password = password.autocomplete("new-password").max_length(MAX_PASSWORD_BYTES);
        let mut fields = vec![
            text("title", "Title", &self.title).required().max_length(128),
            text("monitors", "Monitors", &self.monitors).hint(
                "Ids, tags or groups, separated by commas. These monitors are shown even if they are not published. If empty: all published monitors",
            ),
            text("logo", "Logo", &self.logo).hint("The URL of an image, or a data: URL of at most 32 KiB"),
            text("accent", "Accent colour", &self.accent).max_length(7).placeholder("#0a5cc2"),
            password.hint(if has_password { "Empty: the password stays as it is" } else { "Empty: everyone can read the page" }),
        ];
        if has_password {
            fields.push(Field::checkbox("no_password", "Remove the password").value(&self.no_password));
        }
        fields
    }

    fn request(&self) -> StatusPageRequest {
        let monitors = self.monitors.split(',').map(|name| name.trim().to_owned());
        StatusPageRequest {
            title: self.title.clone(),
            logo: self.logo.trim().to_owned(),
            accent: self.accent.trim().to_owned(),
            monitors: monitors.filter(|name| !name.is_empty()).collect(),
            password: match (self.no_password.as_str(), self.password.as_str()) {
                ("on", _) => Some(String::new()),
                (_, password) => Some(password.to_owned()).filter(|password| !password.is_empty()),
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
