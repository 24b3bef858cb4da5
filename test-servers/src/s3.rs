//! An S3 server on a folder (`s3s-fs`) with signature checks. Tests can kill, restart, slow down and break it.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, combinators::UnsyncBoxBody};
use hyper::body::{Body, Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s_fs::FileSystem;
use tempfile::TempDir;
use tokio::net::TcpListener;

pub const BUCKET: &str = "blobs";
/// The only valid access key, and its secret.
pub const ACCESS_KEY: &str = "tributary-test";
pub const SECRET_KEY: &str = "tributary-test-secret";

type Broken = Box<dyn std::error::Error + Send + Sync>;
type Reply = Response<UnsyncBoxBody<Bytes, Broken>>;
type Judge = dyn FnMut(&Method, &Uri) -> Treatment + Send;

/// Treatment of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    Serve,
    /// Responds with this status, without processing.
    Refuse(StatusCode),
    /// Processes the request after a delay.
    Delay(Duration),
    /// Responds with this body, without processing.
    Answer(&'static str),
    /// Closes the connection without processing.
    Drop,
    /// Processes the request, and closes the connection without a response.
    Unanswered,
    /// Closes the connection after this many bytes of the response body.
    Cut(u64),
    /// Processes the request, and responds with a version id like a versioned bucket.
    Versioned,
}

/// A server in its own thread; stopped when dropped. Its objects stay in its folder while it is stopped.
pub struct S3Server {
    folder: TempDir,
    address: SocketAddr,
    running: Option<Running>,
    shared: Arc<Shared>,
}

struct Running {
    threads: tokio::runtime::Runtime,
    /// Set at a kill to suppress responses: pending file operations would report missing files.
    is_killed: Arc<AtomicBool>,
}

struct Shared {
    judge: Mutex<Box<Judge>>,
    requests: Mutex<BTreeMap<String, u64>>,
    /// `s3s-fs` reads the present object and then replaces it. Serializing conditional requests makes them atomic, as on a real server.
    conditions: tokio::sync::Mutex<()>,
}

/// An address unused by other processes: the port stays free while the server is stopped. Linux alone has several.
fn own_address() -> Ipv4Addr {
    if !cfg!(target_os = "linux") {
        return Ipv4Addr::LOCALHOST;
    }
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, high | 128, middle, low)
}

impl S3Server {
    /// Starts a server with an empty bucket, on a free port.
    #[must_use]
    pub fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join(BUCKET)).unwrap();
        let judge: Box<Judge> = Box::new(|_, _| Treatment::Serve);
        let shared = Arc::new(Shared {
            judge: Mutex::new(judge),
            requests: Mutex::default(),
            conditions: tokio::sync::Mutex::default(),
        });
        let mut server = Self { folder, address: (own_address(), 0).into(), running: None, shared };
        server.restart();
        server
    }

    /// Breaks all connections and stops listening, even during requests.
    pub fn kill(&mut self) {
        if let Some(Running { threads, is_killed }) = self.running.take() {
            is_killed.store(true, Ordering::SeqCst);
            threads.shutdown_background();
        }
    }

    /// Restarts the server at the same address, with the same objects.
    pub fn restart(&mut self) {
        self.kill();
        let threads = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let mut builder = S3ServiceBuilder::new(FileSystem::new(self.folder.path()).unwrap());
        builder.set_auth(SimpleAuth::from_single(ACCESS_KEY, SECRET_KEY));
        let (service, address, shared) = (builder.build(), self.address, Arc::clone(&self.shared));
        let is_killed = Arc::<AtomicBool>::default();
        let killed = Arc::clone(&is_killed);
        let (tell, told) = std::sync::mpsc::channel();
        threads.spawn(async move {
            let listener = listen(address).await;
            tell.send(listener.local_addr().unwrap()).unwrap();
            serve(listener, service, shared, killed).await;
        });
        self.address = told.recv().unwrap();
        self.running = Some(Running { threads, is_killed });
    }

    /// `http://ADDRESS`.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The path of an object: to damage, age or delete it.
    #[must_use]
    pub fn object(&self, key: &str) -> PathBuf {
        self.folder.path().join(BUCKET).join(key)
    }

    /// Keys of all objects.
    #[must_use]
    pub fn keys(&self) -> Vec<String> {
        let bucket = self.folder.path().join(BUCKET);
        let mut keys = Vec::new();
        walk(&bucket, &mut |path| keys.push(path.strip_prefix(&bucket).unwrap().to_string_lossy().into_owned()));
        keys.sort();
        keys
    }

    /// Parts of unfinished uploads.
    #[must_use]
    pub fn unfinished_parts(&self) -> usize {
        let entries = std::fs::read_dir(self.folder.path()).unwrap();
        entries.filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().starts_with(".upload_id-")).count()
    }

    /// Sets the treatment of requests.
    pub fn treat(&self, judge: impl FnMut(&Method, &Uri) -> Treatment + Send + 'static) {
        *lock(&self.shared.judge) = Box::new(judge);
    }

    /// Requests received so far, by method.
    #[must_use]
    pub fn requests(&self) -> BTreeMap<String, u64> {
        lock(&self.shared.requests).clone()
    }
}

impl Drop for S3Server {
    fn drop(&mut self) {
        self.kill();
    }
}

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn walk(folder: &Path, found: &mut dyn FnMut(&Path)) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { walk(&path, found) } else { found(&path) }
    }
}

/// Waits for the address: a killed server may listen for a moment longer.
async fn listen(address: SocketAddr) -> TcpListener {
    for _ in 0..200 {
        if let Ok(listener) = TcpListener::bind(address).await {
            return listener;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    TcpListener::bind(address).await.unwrap()
}

async fn serve(listener: TcpListener, service: S3Service, shared: Arc<Shared>, is_killed: Arc<AtomicBool>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let (service, shared, is_killed) = (service.clone(), Arc::clone(&shared), Arc::clone(&is_killed));
        tokio::spawn(async move {
            let run = (service, shared, is_killed);
            let answer = service_fn(move |request| treated(run.clone(), request));
            // The peer or a treatment may end the connection at any time.
            let _ = Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), answer).await;
        });
    }
}

async fn treated(
    (service, shared, is_killed): (S3Service, Arc<Shared>, Arc<AtomicBool>),
    request: Request<Incoming>,
) -> Result<Reply, Broken> {
    *lock(&shared.requests).entry(request.method().to_string()).or_default() += 1;
    let treatment = lock(&shared.judge)(request.method(), request.uri());
    let left = match treatment {
        Treatment::Serve => u64::MAX,
        Treatment::Refuse(status) => return Ok(Response::builder().status(status).body(whole(""))?),
        Treatment::Answer(answer) => return Ok(Response::builder().header("etag", "\"0\"").body(whole(answer))?),
        Treatment::Delay(pause) => {
            tokio::time::sleep(pause).await;
            u64::MAX
        }
        Treatment::Drop => return Err("the connection is dropped".into()),
        Treatment::Cut(left) => left,
        Treatment::Unanswered | Treatment::Versioned => u64::MAX,
    };
    let has_condition = [http::header::IF_MATCH, http::header::IF_NONE_MATCH];
    let has_condition = has_condition.iter().any(|name| request.headers().contains_key(name));
    let turn = if has_condition { Some(shared.conditions.lock().await) } else { None };
    let mut response =
        service.call(request.map(s3s::Body::from)).await.map_err(|error| Broken::from(format!("{error:?}")))?;
    drop(turn);
    if treatment == Treatment::Unanswered {
        return Err("the answer is lost".into());
    }
    if treatment == Treatment::Versioned {
        response.headers_mut().insert("x-amz-version-id", http::HeaderValue::from_static("v2"));
    }
    if is_killed.load(Ordering::SeqCst) {
        return Err("the server was killed".into());
    }
    Ok(response.map(|body| Cut { body, left }.boxed_unsync()))
}

fn whole(body: &'static str) -> UnsyncBoxBody<Bytes, Broken> {
    Full::new(Bytes::from_static(body.as_bytes())).map_err(|never| match never {}).boxed_unsync()
}

/// A body that breaks after some bytes.
struct Cut {
    body: s3s::Body,
    left: u64,
}

impl Body for Cut {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let Some(frame) = ready!(Pin::new(&mut self.body).poll_frame(context)) else { return Poll::Ready(None) };
        let frame = frame.map_err(|error| Broken::from(error.to_string()))?;
        let length = frame.data_ref().map_or(0, Bytes::len) as u64;
        if length > self.left {
            return Poll::Ready(Some(Err("the connection is cut".into())));
        }
        self.left -= length;
        Poll::Ready(Some(Ok(frame)))
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        self.body.size_hint()
    }
}
