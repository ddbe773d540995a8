//! Every pair of features with real servers: a single one, and a Cluster.

use tollgate_testkit::features::Cell;

use super::cluster;
use crate::support::redis::Redis;

#[tokio::test]
async fn features_do_together_what_each_does_alone_on_real_servers() {
    let single = Redis::start().await;
    let cluster = cluster().await;
    let mut broken = Vec::new();
    for cell in Cell::all() {
        for url in [single.url(), cluster.url()] {
            broken.extend(cell.broken_with(&url).await);
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}
