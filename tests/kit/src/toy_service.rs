//! The whole service, in this process, over a store that `src` does not know.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use clap::Parser as _;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tollgate::app::{OpenStore, prepare, run_over};
use tollgate::settings;

use super::policy::Policies;
use super::redis::port;
use super::rls::Client;
use super::tollgate::output;
use super::toy::Toy;
use super::web::Web;
use super::{TEST_TIMEOUT, becomes};

#[derive(clap::Parser)]
struct ServeCommand {
    #[command(flatten)]
    flags: settings::Flags,
}

/// A running service over a toy, in this process.
pub struct ToyService {
    pub grpc: SocketAddr,
    pub client: Client,
    pub web: Web,
    pub admin: Web,
}

impl ToyService {
    /// Runs a service with additional flags while `test` runs.
    pub async fn run(toy: &Toy, policy: &str, flags: &[&str], test: impl AsyncFnOnce(Self)) {
        let policies = Policies::of(policy);
        let ports = [port::free(), port::free(), port::free()];
        let [grpc, http, admin] = ports.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        let addresses = [grpc, http, admin].map(|address| address.to_string());
        let arguments = [
            ["--policy", policies.path().to_str().unwrap()],
            ["--grpc-listen", &addresses[0]],
            ["--http-listen", &addresses[1]],
            ["--admin-listen", &addresses[2]],
            ["--drain-delay", "0s"],
        ];
        let arguments = ["tollgate"].iter().chain(arguments.as_flattened()).chain(flags);
        let (settings, problems) = ServeCommand::parse_from(arguments).flags.resolve();
        assert_eq!(problems, []);
        let prepared = prepare(&settings).await.unwrap_or_else(|error| panic!("{error}"));
        let toy = toy.clone();
        let open: OpenStore<Toy> = Arc::new(move |_| toy.clone());
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = run_over(open, settings, prepared, async { drop(stopped.await) });
        let testing = async {
            let open = || async { TcpStream::connect(http).await.is_ok() };
            becomes("it listens", TEST_TIMEOUT, open, |is_open| *is_open).await;
            let client = Client::connect(grpc).await;
            test(Self { grpc, client, web: Web::new(http), admin: Web::new(admin) }).await;
            drop(stop);
        };
        let (served, ()) = tokio::join!(serving, testing);
        served.unwrap();
    }

    /// Runs a command that calls the service. Returns its output, and its errors.
    pub async fn command(&self, arguments: &[&str]) -> [String; 2] {
        let admin = format!("http://{}", self.admin.server());
        let arguments: Vec<String> =
            arguments.iter().chain(&["--admin", &admin]).map(|text| (*text).to_owned()).collect();
        let ended = tokio::task::spawn_blocking(move || output(arguments)).await.unwrap();
        [ended.stdout, ended.stderr].map(|text| String::from_utf8(text).unwrap())
    }
}
