//! Routes and handlers.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use axum::extract::rejection::QueryRejection;
use axum::extract::{FromRequestParts, Path, Query, Request, State};
use axum::http::header;
use axum::http::request::Parts;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::Semaphore;
use tracing::warn;

use crate::api::names::VISIBILITY_GROUP;
use crate::view::{Published, View};

use super::super::explain;
use super::super::health::Health;
use super::accept::{Form, IncludeObject, negotiate};
use super::access::{Ask, Authorizer};
use super::identity::Identity;
use super::objects::{GROUP_LIST_KIND, GroupList, ListMetadata, api_version};
use super::refusal::Refusal;
use super::select::Selection;
use super::table::table;
use super::{EXPLANATION, GROUPS, discovery, page};

/// Requests answered at the same time; more are told to come back.
const AT_ONCE: usize = 64;

/// What the handlers need.
#[derive(Clone)]
pub struct Visibility {
    view: Published,
    authorizer: Arc<dyn Authorizer>,
    clock: fn() -> i64,
    permits: Arc<Semaphore>,
}

impl Visibility {
    /// Serves this view to those whom the authorizer allows.
    #[must_use]
    pub fn new(view: Published, authorizer: Arc<dyn Authorizer>) -> Self {
        let permits = Arc::new(Semaphore::new(AT_ONCE));
        Self { view, authorizer, clock: system_millis, permits }
    }

    async fn authorize(&self, who: &Identity, ask: Ask) -> Result<(), Refusal> {
        if who.is_master() {
            return Ok(());
        }
        match self.authorizer.allows(who, &ask).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(Refusal::Forbidden { user: who.user.clone(), ask: Box::new(ask) }),
            Err(error) => {
                warn!(user = who.user, %error, "visibility.authorizer_failed");
                Err(Refusal::NoAuthorizer)
            }
        }
    }

    fn synced_view(&self) -> Result<Arc<View>, Refusal> {
        let view = self.view.load_full();
        if view.synced { Ok(view) } else { Err(Refusal::NotSynced) }
    }
}

impl fmt::Debug for Visibility {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Visibility").finish_non_exhaustive()
    }
}

fn system_millis() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// All routes. Whoever serves them must put an [`Identity`] into the extensions of
/// requests that it has authenticated; without one all but health is 401.
pub fn router(app: Visibility, health: &Health) -> Router {
    let root = format!("/apis/{VISIBILITY_GROUP}");
    let base = format!("/apis/{}", api_version());
    let in_namespace = format!("{base}/namespaces/{{namespace}}/{GROUPS}");
    let documents = Router::new()
        .route("/apis", document(discovery::group_list))
        .route(&root, document(discovery::group))
        .route(&base, document(discovery::resources))
        .route("/openapi/v2", document(discovery::openapi_v2))
        .route("/openapi/v3", document(discovery::openapi_v3_index))
        .route(&format!("/openapi/v3{base}"), document(|| discovery::openapi_v3().clone()));
    let groups = Router::new()
        .route(&format!("{base}/{GROUPS}"), get(list_all))
        .route(&in_namespace, get(list_namespace))
        .route(&format!("{in_namespace}/{{name}}"), get(get_group))
        .route(&format!("{in_namespace}/{{name}}/{EXPLANATION}"), get(get_explanation));
    documents
        .merge(groups)
        .route_layer(middleware::from_fn_with_state(app.clone(), limit))
        .merge(health.router())
        .fallback(async || Refusal::NoPath)
        .method_not_allowed_fallback(async || Refusal::ReadOnly)
        .with_state(app)
}

fn document(make: fn() -> Value) -> MethodRouter<Visibility> {
    get(async move |_: Reader| Json(make()))
}

async fn limit(State(app): State<Visibility>, request: Request, next: Next) -> Response {
    match app.permits.try_acquire() {
        Ok(_permit) => next.run(request).await,
        Err(_) => Refusal::Busy.into_response(),
    }
}

async fn list_all(State(app): State<Visibility>, reader: Reader) -> Result<Response, Refusal> {
    list(&app, &reader, None).await
}

async fn list_namespace(
    State(app): State<Visibility>,
    Path(namespace): Path<String>,
    reader: Reader,
) -> Result<Response, Refusal> {
    list(&app, &reader, Some(&namespace)).await
}

async fn list(
    app: &Visibility,
    reader: &Reader,
    namespace: Option<&str>,
) -> Result<Response, Refusal> {
    app.authorize(&reader.identity, Ask::list(namespace)).await?;
    let wanted = reader.params.page(namespace)?;
    let include = reader.params.include()?;
    let view = app.synced_view()?;
    let page = wanted.of(&view);
    let metadata =
        ListMetadata { resource_version: view.revision.to_string(), continue_: page.continue_ };
    let groups = page.groups.into_iter();
    Ok(match reader.form {
        Form::Table => Json(table(groups, metadata, include, (app.clock)())).into_response(),
        Form::Json => Json(GroupList {
            api_version: api_version(),
            kind: GROUP_LIST_KIND.to_owned(),
            metadata,
            items: groups.map(|(namespace, row)| explain::group(namespace, row)).collect(),
        })
        .into_response(),
    })
}

async fn get_group(
    State(app): State<Visibility>,
    Path((namespace, name)): Path<(String, String)>,
    reader: Reader,
) -> Result<Response, Refusal> {
    app.authorize(&reader.identity, Ask::get(&namespace, &name)).await?;
    let include = reader.params.include()?;
    let view = app.synced_view()?;
    let row = find(&view, &namespace, &name)?;
    Ok(match reader.form {
        Form::Table => {
            let one = std::iter::once((&*namespace, row));
            Json(table(one, ListMetadata::default(), include, (app.clock)())).into_response()
        }
        Form::Json => Json(explain::group(&namespace, row)).into_response(),
    })
}

async fn get_explanation(
    State(app): State<Visibility>,
    Path((namespace, name)): Path<(String, String)>,
    reader: Reader,
) -> Result<Response, Refusal> {
    app.authorize(&reader.identity, Ask::explanation(&namespace, &name)).await?;
    let view = app.synced_view()?;
    let row = find(&view, &namespace, &name)?;
    Ok(Json(explain::explanation(&view, &namespace, row)).into_response())
}

fn find<'v>(
    view: &'v View,
    namespace: &str,
    name: &str,
) -> Result<&'v crate::view::GroupRow, Refusal> {
    let key = (Arc::from(namespace), Arc::from(name));
    let row = view.groups.get(&key).ok_or_else(|| Refusal::NoGroup(name.to_owned()))?;
    Ok(row)
}

/// Who asks, what for, and in what form.
struct Reader {
    identity: Identity,
    params: Params,
    form: Form,
}

impl FromRequestParts<Visibility> for Reader {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, app: &Visibility) -> Result<Self, Refusal> {
        let identity = parts.extensions.get::<Identity>().cloned();
        let identity = identity.ok_or(Refusal::Unauthorized)?;
        let params = Query::<Params>::from_request_parts(parts, app).await;
        let Query(params) =
            params.map_err(|error: QueryRejection| Refusal::BadRequest(error.body_text()))?;
        let accept = parts.headers.get_all(header::ACCEPT).iter();
        let accept: Vec<_> = accept.filter_map(|value| value.to_str().ok()).collect();
        Ok(Self { identity, params, form: negotiate(Some(&accept.join(","))) })
    }
}

/// Query parameters that mean something here.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Params {
    limit: Option<String>,
    #[serde(rename = "continue")]
    continue_: Option<String>,
    field_selector: Option<String>,
    label_selector: Option<String>,
    watch: Option<String>,
    include_object: Option<String>,
}

impl Params {
    fn page<'a>(&self, namespace: Option<&'a str>) -> Result<page::Request<'a>, Refusal> {
        if !matches!(self.watch.as_deref(), None | Some("" | "0" | "false")) {
            return Err(Refusal::NoWatch);
        }
        let (fields, labels) = (self.field_selector.as_deref(), self.label_selector.as_deref());
        let selection = Selection::parse(fields, labels).map_err(Refusal::BadRequest)?;
        let (limit, continue_) = (self.limit.as_deref(), self.continue_.as_deref());
        page::Request::new(namespace, selection, limit, continue_).map_err(Refusal::BadRequest)
    }

    fn include(&self) -> Result<IncludeObject, Refusal> {
        IncludeObject::parse(self.include_object.as_deref()).map_err(Refusal::BadRequest)
    }
}

#[cfg(test)]
mod tests;
