//! Algorithm 1 of COLORIS (2014), the cache utilization monitor: two signals, which all programs share.

use super::{Manager, Want};

impl Manager {
    /// MONITOR, for the program that was read last.
    pub(super) fn monitor(&mut self, at: usize) {
        let [hot, cold] = self.signals;
        let app = &self.apps[at];
        let Some(bounds) = app.spec.bounds else { return };
        let (unit, shown) = (self.settings.unit, app.shown());
        match app.gauge.want(self.settings.patience) {
            Want::More if !cold => self.signals[0] = true,
            Want::More => {
                let n = unit.min(self.room(at)).min(self.bucket.left());
                let why = format!("{shown}, above {}: takes {n}", bounds.high);
                self.signals[1] = self.take(at, n, None, &why) == 0;
            }
            Want::Less | Want::Nothing if hot && self.spare(at) >= unit => {
                let why = format!("{shown}, below {}: gives {unit}", bounds.low);
                self.give(at, unit, None, &why);
                self.signals = [false, true];
            }
            _ => {}
        }
    }
}
