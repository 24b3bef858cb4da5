//! TCP proxies: one cuts connections after a number of bytes, with several servers; one falls silent.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// A proxy to the first responsive one of its servers, starting with another each time. It cuts the connection whose bytes reach a due cut,
/// and drops these bytes.
pub struct CutLine {
    port: u16,
    ways: Arc<Ways>,
}

struct Ways {
    up: Way,
    down: Way,
}

/// The traffic in one direction.
struct Way {
    carried: AtomicU64,
    /// Total numbers of bytes, over all connections, at which a cut is due.
    cuts: Vec<u64>,
    made: AtomicUsize,
}

impl CutLine {
    /// Creates a proxy for these server addresses, which may come and go. Cuts one connection at each of these totals of bytes sent `up` to
    /// the servers and received `down` from them.
    ///
    /// # Panics
    /// The proxy cannot listen.
    #[must_use]
    pub fn before(servers: Vec<String>, up: Vec<u64>, down: Vec<u64>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let way = |cuts| Way { carried: AtomicU64::new(0), cuts, made: AtomicUsize::new(0) };
        let ways = Arc::new(Ways { up: way(up), down: way(down) });
        let counted = Arc::clone(&ways);
        std::thread::spawn(move || {
            for (turn, arrived) in listener.incoming().enumerate() {
                let (later, first) = servers.split_at(turn % servers.len());
                let onward = first.iter().chain(later).find_map(|server| TcpStream::connect(server).ok());
                if let (Ok(arrived), Some(onward)) = (arrived, onward) {
                    carry(&counted, arrived, onward);
                }
            }
        });
        Self { port, ways }
    }

    /// The port at `localhost`.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Bytes sent to servers, including those dropped by cuts.
    #[must_use]
    pub fn up(&self) -> u64 {
        self.ways.up.carried.load(Ordering::SeqCst)
    }

    /// Bytes received from servers, including those dropped by cuts.
    #[must_use]
    pub fn down(&self) -> u64 {
        self.ways.down.carried.load(Ordering::SeqCst)
    }

    /// Remaining cuts towards the servers.
    #[must_use]
    pub fn cuts_left_up(&self) -> usize {
        self.ways.up.cuts_left()
    }

    /// Remaining cuts from the servers.
    #[must_use]
    pub fn cuts_left_down(&self) -> usize {
        self.ways.down.cuts_left()
    }
}

impl Way {
    /// Counts bytes in transit; false if the connection is cut at them.
    fn pass(&self, bytes: usize) -> bool {
        let before = self.carried.fetch_add(bytes as u64, Ordering::SeqCst);
        let due = self.cuts.iter().filter(|at| (before..before + bytes as u64).contains(*at)).count();
        self.made.fetch_add(due, Ordering::SeqCst);
        due == 0
    }

    fn cuts_left(&self) -> usize {
        self.cuts.len() - self.made.load(Ordering::SeqCst)
    }
}

/// Copies in both directions until one side ends or a cut.
fn carry(ways: &Arc<Ways>, client: TcpStream, server: TcpStream) {
    let (Ok(from_client), Ok(to_server)) = (client.try_clone(), server.try_clone()) else { return };
    for (mut from, mut to, is_up) in [(from_client, to_server, true), (server, client, false)] {
        let ways = Arc::clone(ways);
        std::thread::spawn(move || {
            let way = if is_up { &ways.up } else { &ways.down };
            let mut piece = [0; 16 << 10];
            while let Ok(got @ 1..) = from.read(&mut piece) {
                if !way.pass(got) || to.write_all(&piece[..got]).is_err() {
                    break;
                }
            }
            let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
        });
    }
}

/// A TCP proxy able to fall silent: it stops forwarding but keeps connections open, like a machine without power or a middlebox that forgot
/// a connection.
pub struct SilentLine {
    port: u16,
    is_silent: Arc<AtomicBool>,
}

impl SilentLine {
    /// Creates a proxy for the server at this address.
    ///
    /// # Panics
    /// The proxy cannot listen.
    #[must_use]
    pub fn before(server: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let is_silent = Arc::<AtomicBool>::default();
        let silent = Arc::clone(&is_silent);
        std::thread::spawn(move || {
            for arrived in listener.incoming().flatten() {
                if let Ok(onward) = TcpStream::connect(&server) {
                    carry_until_silent(&silent, &arrived, &onward);
                }
            }
        });
        Self { port, is_silent }
    }

    /// The port at 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Stops forwarding; a connection with traffic in this state stays dead.
    pub fn fall_silent(&self) {
        self.is_silent.store(true, Ordering::SeqCst);
    }

    /// Forwards new connections again.
    pub fn carry_again(&self) {
        self.is_silent.store(false, Ordering::SeqCst);
    }
}

/// Copies in both directions until one side ends. After traffic during a silence, both sides stay open without data.
fn carry_until_silent(is_silent: &Arc<AtomicBool>, client: &TcpStream, server: &TcpStream) {
    let is_dead = Arc::<AtomicBool>::default();
    for (from, to) in [(client, server), (server, client)] {
        let (Ok(mut from), Ok(mut to)) = (from.try_clone(), to.try_clone()) else { return };
        let (is_silent, is_dead) = (Arc::clone(is_silent), Arc::clone(&is_dead));
        std::thread::spawn(move || {
            let mut piece = [0; 16 << 10];
            while let Ok(got @ 1..) = from.read(&mut piece) {
                if is_silent.load(Ordering::SeqCst) {
                    is_dead.store(true, Ordering::SeqCst);
                }
                if !is_dead.load(Ordering::SeqCst) && to.write_all(&piece[..got]).is_err() {
                    break;
                }
            }
            if !is_dead.load(Ordering::SeqCst) {
                let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
            }
        });
    }
}
