# The fits of flexmix's four vignettes: their log-likelihoods, and the tables as CSV files.
# Called by flexmix.py as Rscript flexmix.R FOLDER.
suppressMessages(library(flexmix))
out <- commandArgs(TRUE)[1]
for (name in c("NPreg", "Nclus", "betablocker", "bioChemists", "dmft", "NregFix", "Mehta", "tribolium",
               "trypanosome", "fabricfault", "patent", "seizure", "salmonellaTA98")) {
  data(list = name, package = "flexmix")
  write.csv(as.data.frame(get(name)), file.path(out, paste0(name, ".csv")), row.names = FALSE)
}
two_lines <- data.frame(x = rep(0:1, each = 50))
set.seed(123)
first <- runif(100) < 0.5
two_lines$y <- ifelse(first, 1 - 2 * two_lines$x, 2 + 2 * two_lines$x) + rnorm(100, sd = sqrt(0.1))
write.csv(two_lines, file.path(out, "two_lines.csv"), row.names = FALSE)

# Print the name of a fit, the best log-likelihood of some tries, parameters, and components.
said <- function(name, expr, tries = 5) {
  best <- NULL
  for (i in seq_len(tries)) {
    set.seed(100 + i)
    attempt <<- i
    fit <- tryCatch(eval(expr, globalenv()), error = function(e) NULL)
    if (!is.null(fit) && (is.null(best) || logLik(fit) > logLik(best))) best <- fit
  }
  if (is.null(best)) { cat(name, "NA NA NA\n"); return(invisible(NULL)) }
  k <- if (is(best, "flexmix")) best@k else 1
  cat(name, format(as.numeric(logLik(best)), digits = 10), attr(logLik(best), "df"), k, "\n")
  invisible(best)
}
pois <- FLXMRglm(family = "poisson")
two <- list(FLXMRglm(yn ~ . + I(x^2)), FLXMRglm(yp ~ ., family = "poisson"))
tight <- list(iter.max = 2000, tolerance = 1e-10)
said("npreg_lines", quote(flexmix(yn ~ x + I(x^2), data = NPreg, k = 2, control = tight)))
said("npreg_counts", quote(flexmix(yp ~ x, data = NPreg, k = 2, model = pois, control = tight)))
said("npreg_pairs", quote(flexmix(yn ~ x + I(x^2) | id2, data = NPreg, k = 2, control = tight)))
said("npreg_hard", quote(flexmix(yn ~ x + I(x^2), data = NPreg, k = 2, control = list(classify = "hard"))))
said("npreg_minprior", quote(flexmix(yp ~ x + I(x^2), data = NPreg, k = 4, control = list(minprior = 0.2))))
said("npreg_select", quote(getModel(stepFlexmix(yp ~ x + I(x^2), data = NPreg, k = 1:5, nrep = 5, verbose = FALSE), "BIC")), 1)
said("nclus_diagonal", quote(flexmix(Nclus ~ 1, k = 4, model = FLXMCmvnorm(diagonal = TRUE))))
said("nclus_full", quote(flexmix(Nclus ~ 1, k = 4, model = FLXMCmvnorm(diagonal = FALSE))))
said("beta_glm", quote(glm(cbind(Deaths, Total - Deaths) ~ Treatment, family = binomial, data = betablocker)), 1)
fix <- FLXMRglmfix(family = "binomial", fixed = ~ Treatment)
for (k in 2:4) said(paste0("beta_fixed_", k), bquote(flexmix(cbind(Deaths, Total - Deaths) ~ 1 | Center, model = fix, k = .(k), data = betablocker, control = tight)))
beta <- said("beta_free", quote(flexmix(cbind(Deaths, Total - Deaths) ~ Treatment | Center, model = FLXMRglm(family = "binomial"), k = 3, data = betablocker, control = tight)))
nested <- FLXMRglmfix(family = "binomial", nested = list(k = c(2, 1), formula = c(~ Treatment, ~ 0)))
said("beta_nested", quote(flexmix(cbind(Deaths, Total - Deaths) ~ 1 | Center, model = nested, k = 3, data = betablocker, cluster = posterior(beta), control = tight)), 1)
ff1 <- said("articles", quote(flexmix(art ~ ., data = bioChemists, k = 2, model = pois, control = tight)), 10)
common <- FLXMRglmfix(family = "poisson", fixed = ~ kid5 + mar + ment)
ff2 <- said("articles_common", quote(flexmix(art ~ fem + phd, data = bioChemists, cluster = posterior(ff1), model = common, control = tight)), 1)
said("articles_no_phd", quote(flexmix(art ~ fem, data = bioChemists, cluster = posterior(ff2), model = common, control = tight)), 1)
said("articles_gate", quote(flexmix(art ~ 1, data = bioChemists, cluster = posterior(ff2), concomitant = FLXPmultinom(~ fem), model = common, control = tight)), 1)
said("articles_fem_common", quote(flexmix(art ~ 1, data = bioChemists, cluster = posterior(ff2), model = FLXMRglmfix(family = "poisson", fixed = ~ kid5 + ment + fem), control = tight)), 1)
said("teeth_zero", quote(flexmix(End ~ log(Begin + 0.5) + Gender + Ethnic + Treatment, model = FLXMRziglm(family = "poisson"), k = 2, data = dmft, control = list(minprior = 0.01, iter.max = 2000, tolerance = 1e-10))))
said("npreg_both_gate", quote(flexmix(~ x, data = NPreg, k = 2, model = two, concomitant = FLXPmultinom(~ yb), control = tight)))
# A concomitant model of the user's own: the shares at each value.
shares <- function(formula = ~ 1) {
  z <- new("FLXP", name = "shares", formula = formula)
  by_value <- function(x, y, w) {
    if (missing(w) || is.null(w)) w <- rep(1, nrow(x))
    f <- as.integer(factor(apply(x, 1, paste, collapse = "")))
    average <- apply(w * y, 2, tapply, f, mean)
    list(f = f, share = average / rowSums(average))
  }
  z@fit <- function(x, y, w, ...) { found <- by_value(x, y, w); found$share[found$f, , drop = FALSE] }
  z@refit <- function(x, y, w, ...) by_value(x, y, w)$share
  z
}
said("npreg_both_own_gate", quote(flexmix(~ x, data = NPreg, k = 2, model = two, concomitant = shares(~ yb), control = tight)))
nreg <- said("nregfix", quote(flexmix(y ~ x2 + x1, k = 3, data = NregFix, concomitant = FLXPmultinom(~ w), control = tight)), 10)
nreg <- relabel(nreg, "model", "x1")
both <- said("npreg_both", quote(flexmix(~ x, data = NPreg, k = 2, model = two, control = tight)))
square <- FLXMRglmfix(yn ~ . + 0, nested = list(k = c(1, 1), formula = c(~ 1 + I(x^2), ~ 0)))
either <- quote(c(attempt, 3 - attempt))  # which of two components is the nested one
said("npreg_both_nested", bquote(flexmix(~ x, data = NPreg, cluster = posterior(both)[, .(either)], model = list(square, two[[2]]), control = tight)), 2)
said("simulated_lines", quote(flexmix(y ~ x, data = two_lines, k = 2, control = tight)))
said("nregfix_nested", quote(flexmix(y ~ 1, model = FLXMRglmfix(fixed = ~ x2, nested = list(k = c(1, 2), formula = c(~ 0, ~ x1)), varFix = TRUE), cluster = posterior(nreg), data = NregFix, concomitant = FLXPmultinom(~ w), control = tight)), 1)
drug <- FLXMRglmfix(family = "binomial", fixed = ~ Drug)
low <- list(minprior = 0.04, iter.max = 2000, tolerance = 1e-10)
said("mehta_fixed", quote(flexmix(cbind(Response, Total - Response) ~ 1 | Site, model = drug, k = 3, data = Mehta, control = low)), 10)
said("mehta_free", quote(flexmix(cbind(Response, Total - Response) ~ Drug | Site, model = FLXMRglm(family = "binomial"), k = 3, data = Mehta, control = low)), 10)
said("mehta_without_15", quote(flexmix(cbind(Response, Total - Response) ~ 1 | Site, model = drug, k = 2, data = subset(Mehta, Site != 15), control = tight)))
spec <- FLXMRglmfix(fixed = ~ Species, family = "binomial")
for (k in 2:3) said(paste0("tribolium_", k), bquote(flexmix(cbind(Remaining, Total - Remaining) ~ 1, k = .(k), model = spec, concomitant = FLXPmultinom(~ Replicate), data = tribolium, control = tight)), 10)
wang <- FLXMRglmfix(fixed = ~ I(Species == "Confusum"), family = "binomial")
said("tribolium_wang", quote(flexmix(cbind(Remaining, Total - Remaining) ~ 1, k = 2, data = tribolium, model = wang, concomitant = FLXPmultinom(~ I(Replicate == 3)), control = tight)), 10)
said("tribolium_wang_less", quote(flexmix(cbind(Remaining, Total - Remaining) ~ 1, k = 2, data = tribolium[-7, ], model = wang, concomitant = FLXPmultinom(~ I(Replicate == 3)), control = tight)), 10)
said("trypanosome", quote(flexmix(cbind(Dead, 1 - Dead) ~ 1, k = 2, data = trypanosome, model = FLXMRglmfix(family = "binomial", fixed = ~ log(Dose)), control = tight)), 10)
fab <- said("faults", quote(flexmix(Faults ~ 1, model = FLXMRglmfix(family = "poisson", fixed = ~ log(Length)), data = fabricfault, k = 2, control = tight)))
said("faults_nested", bquote(flexmix(Faults ~ 0, data = fabricfault, cluster = posterior(fab)[, .(either)], model = FLXMRglmfix(family = "poisson", fixed = ~ log(Length), nested = list(k = c(1, 1), formula = list(~ 0, ~ 1))), control = tight)), 2)
pat <- said("patents", quote(flexmix(Patents ~ lgRD, k = 3, model = pois, data = patent, concomitant = FLXPmultinom(~ RDS), control = tight)), 10)
said("patents_common", quote(flexmix(Patents ~ 1, model = FLXMRglmfix(family = "poisson", fixed = ~ lgRD), cluster = posterior(pat), concomitant = FLXPmultinom(~ RDS), data = patent, control = tight)), 1)
seiz <- FLXMRglm(family = "poisson", offset = log(seizure$Hours))
s1 <- said("seizures", quote(flexmix(Seizures ~ Treatment * log(Day), data = seizure, k = 2, model = seiz, control = tight)))
said("seizures_27", quote(flexmix(Seizures ~ Treatment * log(Day / 27), data = seizure, cluster = posterior(s1), model = seiz, control = tight)), 1)
said("seizures_no_jump", quote(flexmix(Seizures ~ log(Day / 27) / Treatment, data = seizure, cluster = posterior(s1), model = seiz, control = tight)), 1)
said("salmonella", quote(flexmix(y ~ 1, data = salmonellaTA98, k = 2, model = FLXMRglmfix(family = "poisson", fixed = ~ x + log(x + 10)), control = tight)), 10)
