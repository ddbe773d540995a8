//! The crate h2: its client sends requests to a minimal server, which reads and writes frames with
//! this decoder and this encoder.

use std::sync::{Arc, Mutex};

use ::h2::client::{self, SendRequest};
use http::{HeaderMap, HeaderName, HeaderValue, Request};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::sync::oneshot;

use super::*;

const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const CONTINUATION: u8 = 9;
/// Flag of SETTINGS: the peer has applied them.
const ACK: u8 = 1;
/// Flag of HEADERS: the stream has no more frames.
const END_STREAM: u8 = 1;
/// Flag of HEADERS and CONTINUATION: the block is complete.
const END_HEADERS: u8 = 4;
const HEADER_TABLE_SIZE: u16 = 1;
/// Default maximum payload of a frame, in bytes.
const MAX_FRAME: usize = 16_384;

/// The table sizes that both sides advertise, and the calls of one connection.
#[derive(Clone, Debug)]
struct ClientSession {
    server_table: usize,
    client_table: u32,
    calls: Vec<(Vec<ClientField>, Vec<ClientField>)>,
}

fn connections() -> impl Strategy<Value = ClientSession> {
    let server_table = prop_oneof![Just(4096_usize), Just(4096), 0..4096_usize, Just(10_000)];
    let client_table = prop_oneof![Just(4096_u32), 0..400_u32, Just(100_000)];
    (server_table, client_table, vec((fields(), fields()), 1..20)).prop_map(
        |(server_table, client_table, calls)| ClientSession { server_table, client_table, calls },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    #[test]
    fn requests_of_the_crate_h2_and_responses_to_it_are_read_as_they_were_sent(connection in connections()) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(exchange(connection));
    }
}

/// Makes all calls of a connection, one after the other.
async fn exchange(connection: ClientSession) {
    let (near, far) = tokio::io::duplex(64 << 10);
    let responses = Arc::default();
    let calls = Arc::<Mutex<Vec<ServedCall>>>::default();
    let (ready, is_ready) = oneshot::channel();
    let server = FrameServer {
        io: far,
        encoder: Encoder::new(),
        decoder: Decoder::new(connection.server_table),
        responses: Arc::clone(&responses),
        calls: Arc::clone(&calls),
        ready: Some(ready),
    };
    let server = tokio::spawn(server.serve(connection.server_table));
    let mut builder = client::Builder::new();
    builder.header_table_size(connection.client_table).max_header_list_size(1 << 20);
    let (mut client, driver) = builder.handshake::<_, &[u8]>(near).await.unwrap();
    let driver = tokio::spawn(driver);
    // Until then, the client does not know the size of the server's table.
    is_ready.await.unwrap();
    for (request, response) in connection.calls {
        responses.lock().unwrap().push(response);
        let (sent, received) = call(&mut client, &request).await;
        let observed = calls.lock().unwrap().pop().unwrap();
        assert_eq!(observed.request, sent);
        assert_eq!(received, map(&observed.response));
    }
    drop(client);
    driver.await.unwrap().unwrap();
    server.await.unwrap();
}

/// Makes a call. Returns the request, in the order of h2, and the response.
async fn call(
    client: &mut SendRequest<&'static [u8]>,
    fields: &[ClientField],
) -> (Vec<OwnedField>, HeaderMap) {
    let mut request = Request::post(
        "http://tollgate/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
    );
    for field in fields {
        let mut value = HeaderValue::from_bytes(&field.value).unwrap();
        value.set_sensitive(field.is_sensitive);
        request = request.header(&field.name, value);
    }
    let request = request.body(()).unwrap();
    let pseudo = [
        (":method", "POST"),
        (":scheme", "http"),
        (":authority", "tollgate"),
        (":path", "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"),
    ];
    let pseudo = pseudo.map(|(name, value)| (name.into(), value.into()));
    let headers = request
        .headers()
        .iter()
        .map(|(name, value)| (name.as_str().into(), value.as_bytes().into()));
    let sent = pseudo.into_iter().chain(headers).collect();
    *client = client.clone().ready().await.unwrap();
    let (response, _) = client.send_request(request, true).unwrap();
    (sent, response.await.unwrap().headers().clone())
}

/// Returns the fields without pseudo-headers, as h2 exposes them.
fn map(fields: &[OwnedField]) -> HeaderMap {
    let fields = fields.iter().filter(|(name, _)| !name.starts_with(b":"));
    let header = |(name, value): &OwnedField| {
        (HeaderName::from_bytes(name).unwrap(), HeaderValue::from_bytes(value).unwrap())
    };
    let mut map = HeaderMap::new();
    fields.map(header).for_each(|(name, value)| _ = map.append(name, value));
    map
}

/// A server that reads frames, and answers each HEADERS.
struct FrameServer {
    io: DuplexStream,
    encoder: Encoder,
    decoder: Decoder,
    /// The fields of the next response.
    responses: Arc<Mutex<Vec<Vec<ClientField>>>>,
    /// The last call.
    calls: Arc<Mutex<Vec<ServedCall>>>,
    ready: Option<oneshot::Sender<()>>,
}

/// The fields that the server read, and those that it wrote.
struct ServedCall {
    request: Vec<OwnedField>,
    response: Vec<OwnedField>,
}

struct RawFrame {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

impl FrameServer {
    async fn serve(mut self, table: usize) {
        let mut preface = [0; 24];
        self.io.read_exact(&mut preface).await.unwrap();
        let table = u32::try_from(table).unwrap().to_be_bytes();
        self.write(SETTINGS, 0, 0, &[&HEADER_TABLE_SIZE.to_be_bytes()[..], &table].concat()).await;
        while let Some(frame) = self.frame().await {
            match frame.kind {
                SETTINGS if frame.flags & ACK != 0 => self.ready.take().unwrap().send(()).unwrap(),
                SETTINGS => self.apply(&frame.payload).await,
                HEADERS => self.answer(frame).await,
                _ => {}
            }
        }
    }

    /// Reads a frame. Returns `None` at the end of the connection.
    async fn frame(&mut self) -> Option<RawFrame> {
        let mut header = [0; 9];
        self.io.read_exact(&mut header).await.ok()?;
        let [a, b, c, kind, flags, stream @ ..] = header;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]).try_into().unwrap()];
        self.io.read_exact(&mut payload).await.unwrap();
        Some(RawFrame { kind, flags, stream: u32::from_be_bytes(stream), payload })
    }

    async fn write(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let [_, length @ ..] = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let frame = [&length, &[kind, flags][..], &stream.to_be_bytes(), payload].concat();
        self.io.write_all(&frame).await.unwrap();
    }

    async fn apply(&mut self, settings: &[u8]) {
        for setting in settings.chunks(6) {
            if setting[..2] == HEADER_TABLE_SIZE.to_be_bytes() {
                self.encoder.set_max_table(u32::from_be_bytes(setting[2..].try_into().unwrap()));
            }
        }
        self.write(SETTINGS, ACK, 0, &[]).await;
    }

    async fn answer(&mut self, first: RawFrame) {
        let mut flags = first.flags;
        let mut block = first.payload;
        while flags & END_HEADERS == 0 {
            let next = self.frame().await.unwrap();
            assert_eq!((next.kind, next.stream), (CONTINUATION, first.stream));
            block.extend(next.payload);
            flags = next.flags;
        }
        let (request, _) = decode(&mut self.decoder, &block).unwrap();
        let response = self.responses.lock().unwrap().pop().unwrap();
        let mut block = Vec::new();
        let response = write_response(&mut self.encoder, &response, &mut block);
        self.calls.lock().unwrap().push(ServedCall { request, response });
        let frames = block.len().div_ceil(MAX_FRAME);
        for (number, payload) in block.chunks(MAX_FRAME).enumerate() {
            let (kind, first_flags) =
                if number == 0 { (HEADERS, END_STREAM) } else { (CONTINUATION, 0) };
            let last_flags = if number + 1 == frames { END_HEADERS } else { 0 };
            self.write(kind, first_flags | last_flags, first.stream, payload).await;
        }
    }
}
