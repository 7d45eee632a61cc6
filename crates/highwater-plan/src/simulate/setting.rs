//! What a setting says.
//!
//! A *setting* says what happens to a value in one gap (see [`crate::program`]):
//! - `KEEP`: held;
//! - n: dropped at once, and held again from its n-th recomputation inside the gap; in a tail,
//!   dropped at once, and once it is recomputed held until n recomputations have read it;
//! - `released(n)`: held until n recomputations have read it, then as 1 (in a tail, then as `NEVER`);
//! - `NEVER`: dropped, and each recomputation is transient;
//! - `spill(tier)`: dropped, and fetched from a copy on a tier that is made once.
//!
//! A cell whose first gap is kept has its home in memory: it is there throughout. Otherwise its home is
//! the tier of that gap: it is fetched when it is needed, and copied back when it goes after it was
//! overwritten. An update that is still to read a value holds it, unless it is spilled.

use crate::problem::Tier;

/// Keep the value through the gap.
pub(crate) const KEEP: u8 = 0;
/// Hold the value until a recomputation reads it.
pub(crate) const RELEASE: u8 = released(1);
/// Never hold the value in the gap.
pub(crate) const NEVER: u8 = 255;

/// Move the value to a tier for the gap, at once.
pub(crate) const fn spill(tier: Tier) -> u8 {
    match tier {
        Tier::Host => SPILLS[0],
        Tier::Disk => SPILLS[1],
    }
}

/// The settings that move.
pub(crate) const SPILLS: [u8; 2] = [190, 191];

/// The tier that a setting moves to.
pub(crate) const fn spilled(setting: u8) -> Option<Tier> {
    match setting {
        190 => Some(Tier::Host),
        191 => Some(Tier::Disk),
        _ => None,
    }
}

/// Readers that a released value may wait for at most.
pub(crate) const READERS: u8 = 63;

/// Hold the value until so many recomputations, 1 at least, have read it.
pub(crate) const fn released(readers: u8) -> u8 {
    NEVER - if readers < READERS { readers } else { READERS }
}

/// How many recomputations a setting waits for, if it is one that releases.
pub(crate) const fn awaited(setting: u8) -> Option<u8> {
    match NEVER - setting {
        readers @ 1..=READERS => Some(readers),
        _ => None,
    }
}

/// Setting of a node: what it lacks is made again latest producer first.
pub(crate) const LATEST: u8 = 1;
