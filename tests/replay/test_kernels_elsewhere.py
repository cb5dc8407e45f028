"""What another device has not got, by what it has: as the CPU's own kernels have it."""
from __future__ import annotations

import pytest
import torch
from ptdebug.engine.kernels import attention, depthwise, sgemm
from ptdebug.replay.ladder import kernels_elsewhere as elsewhere

aten = torch.ops.aten


@pytest.mark.parametrize("causal", [True, False])
def test_products_give_what_the_kernel_gives(causal: bool) -> None:
    query, key, value = (torch.randn(2, 3, 5, 8) for _ in range(3))
    mask = None if causal else torch.randn(2, 1, 5, 5)
    out, statistics = aten._scaled_dot_product_flash_attention_for_cpu(
        query, key, value, 0.0, causal, attn_mask=mask, scale=0.3)
    mine, total = elsewhere._flash_on_cpu(query, key, value, 0.0, causal, attn_mask=mask, scale=0.3)
    torch.testing.assert_close((mine, total), (out, statistics))
    assert mine.stride() == out.stride()
    gradient = torch.randn_like(out)
    known = aten._scaled_dot_product_flash_attention_for_cpu_backward(
        gradient, query, key, value, out, statistics, 0.0, causal, attn_mask=mask, scale=0.3)
    found = elsewhere._flash_on_cpu_backward(
        gradient, query, key, value, out, statistics, 0.0, causal, attn_mask=mask, scale=0.3)
    torch.testing.assert_close(found, known, rtol=1e-4, atol=1e-5)
    efficient = elsewhere._efficient(query, key, value, mask, True, 0.0, causal, scale=0.3)
    torch.testing.assert_close(efficient[0], out)
    assert efficient[1].shape == (2, 3, 32)
    torch.testing.assert_close(elsewhere._efficient_backward(
        gradient, query, key, value, mask, out, efficient[1], *efficient[2:], 0.0, [True] * 4, causal, scale=0.3)[:3],
        known, rtol=1e-4, atol=1e-5)


def test_what_is_not_a_number_stays_so_and_what_sees_no_key_is_zero() -> None:
    query, key, value = (torch.randn(1, 2, 4, 8) for _ in range(3))
    query[0, 0, 2, 0] = torch.nan
    mask = torch.zeros(1, 1, 4, 4)
    mask[:, :, 1] = -torch.inf
    out, _ = aten._scaled_dot_product_flash_attention_for_cpu(query, key, value, 0.0, False, attn_mask=mask)
    mine, _ = elsewhere._flash_on_cpu(query, key, value, 0.0, False, attn_mask=mask)
    torch.testing.assert_close(mine, out, equal_nan=True)
    assert bool(mine[0, 0, 2].isnan().all()) and not bool(mine[:, :, 1].any())


def test_the_table_is_as_before_afterwards() -> None:
    before = dict(elsewhere.CALLED)
    with elsewhere.kernels_elsewhere("cpu"):
        assert aten._scaled_dot_product_efficient_attention.default in elsewhere.CALLED
    assert before == elsewhere.CALLED


def test_kernels_of_ptdebugs_own_by_aten() -> None:
    left, right, bias = torch.randn(6, 5), torch.randn(5, 7), torch.randn(7)
    for given in ((left, right), (left, right, bias)):
        torch.testing.assert_close(elsewhere._OF_CPU[sgemm.OPERATOR](*given), sgemm.product(*given))
    gradient, image = torch.randn(2, 18, 5, 6), torch.randn(2, 18, 9, 11)
    given = gradient, image, [3, 3], [2, 2], [1, 1], [1, 1]
    expected = depthwise.depthwise_weight_gradient(*given)
    torch.testing.assert_close(elsewhere._OF_CPU[depthwise.OPERATOR](*given), expected,
                               rtol=1e-4, atol=1e-4)
    query, key, value = (torch.randn(2, 3, 5, 8) for _ in range(3))
    torch.testing.assert_close(elsewhere._OF_CPU[attention.OPERATOR](query, key, value, 0.0, True),
                               attention.attention(query, key, value, 0.0, True))
