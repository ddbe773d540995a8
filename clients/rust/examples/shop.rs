//! Limits requests, and reserves the cost of work: `client_shop TARGET`. The example of
//! docs/services.md.

use std::error::Error;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use tollgate_client::{Client, Descriptor, RateLimitLayer};

async fn buy(client: &Client, user: &str) -> Result<String, tollgate_client::Error> {
    let decision = client.should_rate_limit("shop", &[Descriptor::new("user", user)]).await?;
    if !decision.allowed {
        return Ok("denied".to_owned());
    }
    Ok("allowed".to_owned())
}

async fn summarize(
    client: &Client,
    tenant: &str,
    estimate: u32,
) -> Result<String, tollgate_client::Error> {
    let tenant = [Descriptor::new("tenant", tenant)];
    let mut hold = client.reserve("shop", &tenant, estimate).await?;
    if !hold.is_allowed() {
        return Ok("denied".to_owned());
    }
    let tokens = work().await;
    let decision = hold.commit(tokens).await?;
    let remaining = decision.statuses.first().map_or(0, |status| status.remaining);
    Ok(format!("{remaining} remaining"))
}

/// Returns the cost of a call of a language model, here a constant.
async fn work() -> u32 {
    300
}

fn limited(client: &Client, application: Router) -> Router {
    application.layer(RateLimitLayer::new(client.clone(), |request| {
        Some(("shop".into(), vec![Descriptor::new("path", request.uri.path())]))
    }))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let target = std::env::args().nth(1).ok_or("usage: client_shop TARGET")?;
    let client = Client::builder(target).timeout(Duration::from_secs(10)).build()?;
    let application = Router::new().route("/", get(|| async { "shop" }));
    let _application = limited(&client, application);
    for _ in 0..3 {
        eprintln!("result {}", buy(&client, "ann").await?);
    }
    eprintln!("result {}", summarize(&client, "a", 600).await?);
    client.close().await;
    Ok(())
}
