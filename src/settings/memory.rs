//! Memory budget of the process, divided between counters, policies, the journal, and what clients
//! make the process hold.

use std::fmt;
use std::fs;
use std::path::Path;

use super::{FlagError, FlagProblem, FlagValue, Problems, deferred, parse};
use crate::policy::MEMORY_MAX;

/// Memory of the process besides counters, policies, the journal and what clients make it hold:
/// code, threads, cached denials, metrics of rules of usual number, the heads of HTTP requests, and
/// what the allocator retains.
pub const BASE_BYTES: usize = 64 << 20;
/// Address space that the allocator and the stacks of threads reserve without using it, as measured
/// with [`ALLOCATOR_VARIABLES`] set.
const UNUSED_ADDRESSES: usize = 128 << 20;
/// Variables that make the allocators (mimalloc and that of the C library) reserve little address
/// space. By default mimalloc reserves 1 GiB at first, or else 128 MiB at a time, and the C library
/// 64 MiB per thread.
const ALLOCATOR_VARIABLES: [(&str, &str); 2] =
    [("MIMALLOC_ARENA_RESERVE", "64MiB"), ("MALLOC_ARENA_MAX", "1")];
/// Memory limit that is assumed if the system sets none.
const ASSUMED_LIMIT: usize = 1 << 30;
/// Default of `--memory-max` if the limit leaves enough.
const COUNTERS: usize = 256 << 20;
/// Minimum memory for counters, policies and clients in a computed division; flags may set less.
const MIN_COUNTERS: usize = 16 << 20;
const MIN_POLICIES: usize = 16 << 20;
const MIN_CLIENTS: usize = 32 << 20;
/// Divisor of the memory that is divided for the default share of policies.
const SHARE_OF_POLICIES: usize = 3;
/// Minimum memory for counters that a flag may set.
const MIN_COUNTERS_GIVEN: usize = 1 << 20;
/// Minimum memory for clients that a flag may set: a message of the largest size and its response.
const MIN_CLIENTS_GIVEN: usize = 4 << 20;

#[derive(Debug, clap::Args)]
#[group(skip)]
#[command(next_help_heading = "Memory")]
pub(super) struct Flags {
    /// Memory for counters; default: 256MiB, or less if that leaves too little for clients. When it
    /// is full, new counters are refused and on_store_error of their limits applies.
    #[arg(long, env = "TOLLGATE_MEMORY_MAX", value_name = "SIZE", value_parser = deferred(counters))]
    memory_max: Option<FlagValue<usize>>,
    /// Memory that clients can make the process hold: connections, calls in flight, queued messages
    /// and responses. Beyond it, calls are refused (RESOURCE_EXHAUSTED), and connections that are
    /// idle or hold the most are closed with GOAWAY; default: what remains of the cgroup limit
    /// (1GiB if there is none), at least 32MiB.
    #[arg(long, env = "TOLLGATE_CLIENT_MEMORY_MAX", value_name = "SIZE", value_parser = deferred(clients))]
    client_memory_max: Option<FlagValue<usize>>,
}

/// Memory budget of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemorySettings {
    /// Limit of the process, and its source.
    pub limit: MemoryLimit,
    /// Bytes for counters.
    pub counters: usize,
    /// Bytes for policies in force, candidates, and those being compiled to replace them.
    pub policies: usize,
    /// Bytes for the journal of denials.
    pub journal: usize,
    /// Bytes that clients can make the process hold.
    pub clients: usize,
    /// `true` if `counters` is less than the default, to leave memory for clients.
    pub is_shrunk: bool,
}

/// A limit of the process's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryLimit {
    /// The limit in bytes.
    pub bytes: usize,
    /// Source of the limit.
    pub source: LimitSource,
}

/// Source of a limit of the process's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitSource {
    /// A control group, as containers have.
    Cgroup,
    /// RLIMIT_AS, as `ulimit -v` sets it.
    AddressSpace,
    /// No limit was found; a default is assumed.
    Assumed,
}

impl fmt::Display for LimitSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cgroup => "cgroup",
            Self::AddressSpace => "RLIMIT_AS",
            Self::Assumed => "no cgroup limit found",
        })
    }
}

impl fmt::Display for MemorySettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { limit, counters, policies, journal, clients, is_shrunk: _ } = *self;
        let counters = Size(counters);
        let clients = Size(clients);
        let policies = Size(policies);
        let journal = Size(journal);
        let own = Size(limit.base());
        write!(f, "{} of {} ({}): ", Size(self.sum()), Size(limit.bytes), limit.source)?;
        write!(f, "counters {counters}, clients {clients}, policies {policies}, ")?;
        write!(f, "journal {journal}, fixed overhead {own}")
    }
}

impl Flags {
    /// Resolves the flags. `journal` is the size of the journal of denials, in bytes, and
    /// `policies` the value of `--policy-memory-max`.
    pub(super) fn resolve(
        self,
        journal: usize,
        policies: Option<usize>,
        limit: MemoryLimit,
        problems: &mut Problems,
    ) -> MemorySettings {
        // A size with a problem counts as not set, and causes no further ones.
        let [counters, clients] = [self.memory_max, self.client_memory_max]
            .map(|size| size.map(|size| problems.take(size)).filter(|bytes| *bytes > 0));
        MemorySettings::divide(limit, journal, policies, counters, clients)
    }
}

fn counters(text: &str) -> Result<usize, FlagError> {
    at_least(MIN_COUNTERS_GIVEN, "counters", text)
}

fn clients(text: &str) -> Result<usize, FlagError> {
    at_least(MIN_CLIENTS_GIVEN, "clients", text)
}

/// Parses a size that its purpose needs at least.
fn at_least(least: usize, purpose: &str, text: &str) -> Result<usize, FlagError> {
    let bytes = parse::bytes(text)?;
    let what = format_args!("{purpose} need at least {}, found `{text}`", Size(least));
    if bytes < least { Err(FlagError::refused(what)) } else { Ok(bytes) }
}

impl MemorySettings {
    /// Divides a limit. `policies`, `counters` and `clients` are the values of flags and apply
    /// whether they fit or not.
    fn divide(
        limit: MemoryLimit,
        journal: usize,
        policies: Option<usize>,
        counters: Option<usize>,
        clients: Option<usize>,
    ) -> Self {
        let room = limit.bytes.saturating_sub(limit.base()).saturating_sub(journal);
        let policies = policies.unwrap_or_else(|| {
            MEMORY_MAX.min(room.div_euclid(SHARE_OF_POLICIES)).max(MIN_POLICIES)
        });
        let room = room.saturating_sub(policies);
        let default =
            COUNTERS.min(room.saturating_sub(clients.unwrap_or(MIN_CLIENTS)).max(MIN_COUNTERS));
        let shared = counters.unwrap_or(default);
        let clients = clients.unwrap_or_else(|| room.saturating_sub(shared).max(MIN_CLIENTS));
        Self {
            limit,
            counters: shared,
            policies,
            journal,
            clients,
            is_shrunk: counters.is_none() && default < COUNTERS,
        }
    }

    /// Returns the number of bytes that the process may use at most.
    pub fn sum(&self) -> usize {
        [self.counters, self.policies, self.journal, self.clients]
            .into_iter()
            .fold(self.limit.base(), usize::saturating_add)
    }

    /// Returns the reason why the process must not run: the first allocation or thread beyond its
    /// limit of address space would terminate it. The limit of a control group is one of used
    /// memory, which the process may never reach.
    pub fn problem(&self) -> Option<FlagProblem> {
        let what = self.excess().filter(|_| self.limit.source == LimitSource::AddressSpace)?;
        Some(FlagProblem { flag: "RLIMIT_AS".to_owned(), what })
    }

    /// Returns warnings to log at startup.
    pub fn warnings(&self) -> Vec<String> {
        let Self { limit, counters, policies, clients, .. } = *self;
        let mut warnings = Vec::new();
        if self.is_shrunk {
            warnings.push(format!(
                "--memory-max reduced to {} from {}: the limit of {} ({}) leaves no more next to {} for clients and {} for policies",
                Size(counters),
                Size(COUNTERS),
                Size(limit.bytes),
                limit.source,
                Size(clients),
                Size(policies)
            ));
        }
        warnings.extend(self.excess().filter(|_| limit.source == LimitSource::Cgroup));
        warnings
    }

    /// Describes the settings if their sum is above the limit of the process.
    fn excess(&self) -> Option<String> {
        let Self { limit, counters, policies, journal, clients, is_shrunk: _ } = *self;
        (self.sum() > limit.bytes).then(|| {
            format!(
                "memory settings add up to {}, above the limit of {} ({}): --memory-max {}, --client-memory-max {}, \
                 --policy-memory-max {}, --denial-journal {} and fixed overhead {}; lower a setting or raise the limit",
                Size(self.sum()), Size(limit.bytes), limit.source, Size(counters), Size(clients),
                Size(policies), Size(journal), Size(limit.base())
            )
        })
    }
}

/// Returns the environment variables, with their values, that the process must be restarted with:
/// its address space is limited, and its allocators, which read them at startup, would reserve most
/// of it.
pub fn missing_allocator_variables() -> Vec<(&'static str, &'static str)> {
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    if address_space(&limits).is_none() {
        return Vec::new();
    }
    let variables = ALLOCATOR_VARIABLES.into_iter();
    variables.filter(|(name, _)| std::env::var_os(name).is_none()).collect()
}

impl MemoryLimit {
    /// Returns the part of the limit that is not divided.
    fn base(self) -> usize {
        match self.source {
            LimitSource::AddressSpace => BASE_BYTES + UNUSED_ADDRESSES,
            LimitSource::Cgroup | LimitSource::Assumed => BASE_BYTES,
        }
    }

    /// Finds the limit of this process: the smaller of those of its control group and of its
    /// address space.
    pub(super) fn find() -> Self {
        Self::find_in(Path::new("/"))
    }

    fn find_in(root: &Path) -> Self {
        let groups = text_below(root, "/proc/self/cgroup");
        let cgroup = groups
            .lines()
            .flat_map(files_of)
            .filter_map(|path| text_below(root, &path).trim().parse::<usize>().ok());
        let address_space = address_space(&text_below(root, "/proc/self/limits"));
        let limits =
            [(LimitSource::Cgroup, cgroup.min()), (LimitSource::AddressSpace, address_space)];
        // Without a limit, version 1 of control groups reports a number beyond any machine.
        let found = limits.into_iter().filter_map(|(source, bytes)| {
            let bytes = bytes.filter(|bytes| *bytes < 1 << 60)?;
            Some(Self { bytes, source })
        });
        found
            .min_by_key(|limit| limit.bytes)
            .unwrap_or(Self { bytes: ASSUMED_LIMIT, source: LimitSource::Assumed })
    }
}

/// Returns the contents of the file at an absolute path in the file system below `root`; empty if
/// it cannot be read.
fn text_below(root: &Path, path: &str) -> String {
    fs::read_to_string(root.join(path.trim_start_matches('/'))).unwrap_or_default()
}

/// Returns the files that may limit the memory for a line of `/proc/self/cgroup`: those of the
/// group and of all its ancestors.
fn files_of(line: &str) -> Vec<String> {
    let mut parts = line.splitn(3, ':').skip(1);
    let Some(controllers) = parts.next() else { return Vec::new() };
    let Some(group) = parts.next() else { return Vec::new() };
    let (base, file) = match controllers {
        "" => ("/sys/fs/cgroup", "memory.max"),
        controllers if controllers.split(',').any(|one| one == "memory") => {
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
        }
        _ => return Vec::new(),
    };
    let groups = Path::new(group).ancestors().map(|group| group.to_string_lossy().into_owned());
    groups.map(|group| format!("{base}{}/{file}", group.trim_end_matches('/'))).collect()
}

/// Reads the soft limit of the address space from `/proc/self/limits`.
fn address_space(limits: &str) -> Option<usize> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max address space"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// A size that is displayed in a readable unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub usize);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bytes if bytes >= 1 << 20 => write!(f, "{}MiB", bytes >> 20),
            bytes if bytes >= 1 << 10 => write!(f, "{}KiB", bytes >> 10),
            bytes => write!(f, "{bytes}"),
        }
    }
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, reason = "a test that panics is a test that fails")]
mod tests;
