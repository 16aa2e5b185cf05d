"""Deep clustering network (Yang et al., 2017): an autoencoder whose latent suits k-means."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from kscn.constraints import Integer, Number, parameter
from kscn.errors import TrainingError
from kscn.runtime.device import keep_memory
from kscn.runtime.minibatches import Minibatches
from kscn_paper.rivals.autoencoder import AutoencoderKMeans

# Samples that a centre of the start counts for: it yields to new ones soon, not to the first.
START_COUNT = 100


@dataclass(eq=False, repr=False, kw_only=True)
class DCN(AutoencoderKMeans):
    """Deep clustering network: reconstruction, with latents pulled to centres of k-means.

    For every mini-batch, latents are assigned to the nearest centre m; one step of Adam lowers
    |x - restored|^2 + weight / 2 |z - m|^2, the mean over samples; then each centre moves to every
    latent z of its own in turn by m += (z - m) / count, where count is the number of latents it has
    met. Centres start at those of k-means on the pretrained latent. Labels are the nearest of the
    centres that training ends with: k-means is not run again on the final latent.

    Parameters
    ----------
    weight : float, default=1.0
        Weight of the distance to centres.
    epochs : int, default=50
        Passes over the samples, each with a record in the history.
    learning_rate : float, default=1e-4
        Of Adam.

    Attributes
    ----------
    n_iter_ : int
        Epochs.
    """

    weight: float = parameter(1.0, Number(0))
    epochs: int = parameter(50, Integer(0))
    learning_rate: float = parameter(1e-4, Number(0))

    def _train(self, batches: Minibatches, centres: Tensor) -> Tensor:
        keep_memory()
        network = self.autoencoder_
        centres = centres.to(batches.device, torch.float32)
        counts = torch.full((len(centres),), float(START_COUNT), device=batches.device)
        optimizer = torch.optim.Adam(network.parameters(), self.learning_rate, fused=True)
        generator = torch.Generator().manual_seed(self.random_state_)
        network.train()
        for epoch in range(1, self.epochs + 1):
            totals = torch.zeros(2, dtype=torch.float64, device=batches.device)
            for _, x in batches.shuffled(generator):
                z = network.encode(x)
                labels = torch.cdist(z.detach(), centres).argmin(dim=1)
                error, distance = losses(network.decode(z), x, z, centres[labels])
                optimizer.zero_grad(set_to_none=True)
                (error + self.weight / 2 * distance).backward()
                optimizer.step()
                centres, counts = running_means(centres, counts, z.detach(), labels)
                totals += torch.stack([error, distance]).detach().double() * len(x)
            if not totals.isfinite().all():
                raise TrainingError(
                    f"the loss is no longer a number in epoch {epoch}; lower learning_rate or "
                    "weight and fit again."
                )
            mean_error, mean_distance = (totals / len(batches)).tolist()
            self._record("fit", epoch=epoch, reconstruction=mean_error, distance=mean_distance)
        self.n_iter_ = self.epochs
        network.eval()
        return centres


def losses(restored: Tensor, x: Tensor, z: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
    """|x - restored|^2 and |z - own centre|^2, summed over numbers, the mean over samples."""
    error = nn.functional.mse_loss(restored, x, reduction="sum") / len(x)
    return error, nn.functional.mse_loss(z, own, reduction="sum") / len(x)


def running_means(
    centres: Tensor, counts: Tensor, z: Tensor, labels: Tensor
) -> tuple[Tensor, Tensor]:
    """Centres (k, m) and counts (k,) after meeting latents z (n, m) with given labels, in turn.

    For every sample count += 1 and m += (z - m) / count. That keeps count * m growing by z, so the
    samples of a mini-batch can be met all at once: m becomes m + (sum of (z - m)) / (count + n).
    """
    pull = torch.zeros_like(centres).index_add_(0, labels, z - centres[labels])
    counts = counts.index_add(0, labels, torch.ones_like(z[:, 0]))
    return centres + pull / counts[:, None], counts
