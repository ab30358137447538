"""Whether runs wait for room on a tenant's account, and whether there may be some: four numbers that only rise (P3).

A run that an account turns away *joins* its waitlist, and is parked. Once there is more room, by other limits or since
a call took less than was reserved for it, the account is *due*: a round over all who wait has to be made, by the reaper
if by nobody else. That is said in the very write that makes the room, so that nobody's death loses it.

A round begins with the numbers as they stand, and says at its end that it has *served* them as far as they stood then.
Room that comes back in the middle of it has raised them since, and is due still. Why no run stays parked that fits: it
was turned away under the account's lock, so did not fit then, and whatever has given room since has made the account
due. As the numbers never fall, a round that comes to its end late takes nothing from a later one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Waitlist:
    """A tenant account's."""

    joined: int = 0
    """How often a run was turned away."""
    left: int = 0
    """Up to which of those times nobody waits any more."""
    freed: int = 0
    """How often room came back while somebody may have waited."""
    served: int = 0
    """Up to which of those times all who waited have been looked at since."""

    @property
    def waits(self) -> bool:
        """Whether somebody may be waiting."""
        return self.joined > self.left

    @property
    def due(self) -> bool:
        """Whether somebody who waits may fit now."""
        return self.freed > self.served

    def join(self) -> Waitlist:
        """A run has been turned away."""
        return replace(self, joined=self.joined + 1)

    def free(self) -> Waitlist:
        """There is more room than there was."""
        return replace(self, freed=self.freed + 1) if self.waits else self

    def serve(self, seen: Waitlist, *, empty: bool) -> Waitlist:
        """All who waited as it was ``seen`` have been looked at, and none of them fits; ``empty``: there were none."""
        left = max(self.left, seen.joined) if empty else self.left
        return replace(self, served=max(self.served, seen.freed), left=left)
