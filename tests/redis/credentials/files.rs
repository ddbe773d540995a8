//! Users and passwords in files.

use super::{
    FAILURES, Loaded, REAUTHENTICATIONS, RENEWED, RIGHTS, add_password, clients, guarded, password,
    remove_password,
};
use crate::support::policy::Policies;
use crate::support::redis::Redis;
use crate::support::{TEST_TIMEOUT, becomes};

/// Number of rotations, one a second.
const ROTATIONS: usize = 4;

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_password_that_is_rotated_each_second_fails_no_decision() {
    let redis = Redis::start_as(guarded()).await;
    let files = Policies::none();
    files.write("password", &password(0));
    let file = files.file("password");
    let flags = ["--redis-user", "app", "--redis-password-file", file.to_str().unwrap()];
    let loaded = Loaded::start(&format!("redis://{}", redis.address), &flags).await;
    let first = clients(&redis).await;
    for number in 1..=ROTATIONS {
        let before = loaded.metric(REAUTHENTICATIONS).await;
        add_password(&redis, number).await;
        files.write("password", &password(number));
        loaded.each_counted(REAUTHENTICATIONS, before).await;
        remove_password(&redis, number - 1).await;
        loaded.load.go_on(250).await;
    }
    assert!(clients(&redis).await.is_subset(&first), "the connections are those of the start");
    assert_eq!(loaded.metric(FAILURES).await, 0);
    loaded.end("a password in a file, rotated");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_user_that_is_replaced_and_deleted_each_second_fails_no_decision() {
    let redis = Redis::start_as(guarded()).await;
    let files = Policies::none();
    let write = |number: usize| {
        files.write("user", &format!("app-{number}\n"));
        files.write("password", &password(number));
    };
    let add = async |number: usize| {
        let word = format!(">{}", password(number));
        let user = format!("app-{number}");
        let command = ["ACL", "SETUSER", &user, "on", &word];
        redis.command(&[&command[..], &RIGHTS].concat()).await;
    };
    add(0).await;
    write(0);
    let [user, secret] = ["user", "password"].map(|name| files.file(name));
    let flags = [
        "--redis-user-file",
        user.to_str().unwrap(),
        "--redis-password-file",
        secret.to_str().unwrap(),
    ];
    let loaded = Loaded::start(&format!("redis://{}", redis.address), &flags).await;
    for number in 1..=ROTATIONS {
        add(number).await;
        write(number);
        let user = format!("app-{number}");
        becomes(
            "all are of the new user",
            TEST_TIMEOUT,
            || clients(&redis),
            |all| !all.is_empty() && all.iter().all(|(_, name)| *name == user),
        )
        .await;
        // Its connections would be closed, of which there are none.
        redis.command(&["ACL", "DELUSER", &format!("app-{}", number - 1)]).await;
        loaded.load.go_on(250).await;
    }
    assert!(loaded.metric(RENEWED).await > 0);
    loaded.end("a user in a file, deleted after its successor");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn wrong_credentials_leave_connections_in_use_and_are_logged_once() {
    const WARNING: &str = "cannot renew a connection to Redis; it remains in use";
    let redis = Redis::start_as(guarded()).await;
    let files = Policies::none();
    files.write("password", &password(0));
    let file = files.file("password");
    let flags = ["--redis-user", "app", "--redis-password-file", file.to_str().unwrap()];
    let loaded = Loaded::start(&format!("redis://{}", redis.address), &flags).await;
    let first = clients(&redis).await;
    files.write("password", "secret-that-is-wrong");
    loaded.each_counted(FAILURES, 0).await;
    loaded.wait_for_log(WARNING);
    std::fs::remove_file(&file).unwrap();
    loaded.wait_for_log("cannot read the credentials of Redis; the last ones remain in use");
    let before = loaded.metric(REAUTHENTICATIONS).await;
    add_password(&redis, 1).await;
    files.write("password", &password(1));
    loaded.each_counted(REAUTHENTICATIONS, before).await;
    assert!(clients(&redis).await.is_subset(&first));
    let service = loaded.end("a wrong password in a file");
    let log = service.process.log();
    assert_eq!(log.iter().filter(|line| line.contains(WARNING)).count(), 1, "{log:#?}");
}
