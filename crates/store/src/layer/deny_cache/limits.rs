//! Properties of limits on which cached denials depend.

use std::hash::{BuildHasher as _, Hash as _, Hasher as _};

use tollgate_core::algorithm::Limit;

pub(in crate::layer) fn is_single_fixed_window(limit: &Limit) -> bool {
    limit.counts_per_window() && limit.windows().len() == 1
}

/// Returns `true` if this many hits can ever be admitted.
pub(super) fn fits_ever(limit: &Limit, hits: u64) -> bool {
    limit.windows().iter().all(|window| hits <= u64::from(window.limit()))
}

/// Returns a hash of a limit's amounts: a denial under other amounts does not apply.
pub(super) fn amounts_of(limit: &Limit) -> u64 {
    let mut hasher = foldhash::fast::FixedState::default().build_hasher();
    limit.windows().iter().for_each(|window| hasher.write_u32(window.limit()));
    limit.algorithm().parameters().for_each(|parameter| parameter.value.hash(&mut hasher));
    hasher.finish()
}
