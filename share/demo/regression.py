# Fit y = a + b*x by least squares on data with a known answer.
import math, random

random.seed(7)
TRUE_A, TRUE_B, SIGMA, N = 2.0, 0.75, 0.5, 400
xs = [random.uniform(0, 20) for _ in range(N)]
ys = [TRUE_A + TRUE_B * x + random.gauss(0, SIGMA) for x in xs]

mx, my = sum(xs) / N, sum(ys) / N
sxx = sum((x - mx) ** 2 for x in xs)
sxy = sum((x - mx) * (y - my) for x, y in zip(xs, ys))
b = sxy / sxx
a = my - b * mx
rss = sum((y - a - b * x) ** 2 for x, y in zip(xs, ys))
tss = sum((y - my) ** 2 for y in ys)
s = math.sqrt(rss / (N - 2))
se_b = s / math.sqrt(sxx)
se_a = s * math.sqrt(1 / N + mx * mx / sxx)

print(f"{'':10} {'true':>9} {'fitted':>9} {'std.err':>9}")
print("-" * 40)
print(f"{'intercept':10} {TRUE_A:9.4f} {a:9.4f} {se_a:9.4f}")
print(f"{'slope':10} {TRUE_B:9.4f} {b:9.4f} {se_b:9.4f}")
print(f"{'sigma':10} {SIGMA:9.4f} {s:9.4f}")
print("-" * 40)
print(f"n = {N}, R^2 = {1 - rss / tss:.4f}")
